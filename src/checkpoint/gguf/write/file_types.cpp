#include "checkpoint/gguf/write/file_types.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace fettle {
namespace {

constexpr GgufFileType kFileTypes[] = {
    {"f32", "F32", 0, "F32"},    {"f16", "F16", 1, "F16"},     {"bf16", "BF16", 32, "BF16"},
    {"q8_0", "Q8_0", 7, "Q8_0"}, {"q6_k", "Q6_K", 18, "Q6_K"}, {"q5_k_m", "Q5_K_M", 17, "Q5_K", true},
    {"q5_1", "Q5_1", 9, "Q5_1"}, {"q5_0", "Q5_0", 8, "Q5_0"},  {"q4_k_m", "Q4_K_M", 15, "Q4_K", true},
    {"q4_1", "Q4_1", 3, "Q4_1"}, {"q4_0", "Q4_0", 2, "Q4_0"},
};

bool has_part(const std::string& tensor, std::string_view part) {
  return tensor.find(part) != std::string::npos;
}

// Returns whether the tensor is never quantised.
bool stays_f32(const std::string& tensor, const Dims& dims) {
  return dims.size() < 2 || !tensor.ends_with(".weight") || tensor.ends_with("_norm.weight") ||
         has_part(tensor, "ffn_gate_inp.weight") || has_part(tensor, "ffn_gate_inp_shexp.weight") ||
         has_part(tensor, "conv1d.weight") || has_part(tensor, "shortconv.conv.weight") ||
         tensor == "position_embd.weight";
}

// Returns true for the first and the last eighth of the layers, and for every third layer between them.
bool matters_more(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

std::string_view quantised_type(const GgufFileType& file, const std::string& tensor, const GgufSizes& sizes) {
  const bool embedding = tensor == "token_embd.weight";
  if (tensor == "output.weight" || (embedding && sizes.tied)) return file.type == "Q8_0" ? "Q8_0" : "Q6_K";
  if (embedding) return file.type;
  const int64_t layer = tensor.starts_with("blk.") ? std::atoll(tensor.c_str() + 4) : 0;
  const bool more = file.mixes && matters_more(layer, sizes.layers);
  const bool eight = sizes.experts == 8;
  if (has_part(tensor, "attn_v.weight") || has_part(tensor, "attn_qkv.weight")) {
    if (eight) return "Q8_0";
    if (more) return "Q6_K";
    return sizes.is_70b && file.type == "Q4_K" ? "Q5_K" : file.type;
  }
  if (has_part(tensor, "attn_k.weight") && eight) return "Q8_0";
  if (has_part(tensor, "ffn_down") && more) return "Q6_K";
  if (has_part(tensor, "attn_output.weight") && eight && file.name == "Q4_K_M") return "Q5_K";
  return file.type;
}

// Returns the type with smaller blocks that replaces `type` when a row is not a whole number of its blocks.
std::string_view smaller_blocks(std::string_view type) {
  return type == "Q4_K" ? "Q5_0" : type == "Q5_K" ? "Q5_1" : type == "Q6_K" ? "Q8_0" : type;
}

}  // namespace

const GgufFileType* find_gguf_file_type(std::string_view key) {
  const auto found = std::ranges::find(kFileTypes, key, &GgufFileType::key);
  return found == std::end(kFileTypes) ? nullptr : found;
}

const BlockType& type_in_file(const GgufFileType& file, const std::string& tensor, const Dims& dims,
                              const GgufSizes& sizes) {
  const auto named = [](std::string_view name) -> const BlockType& {
    const BlockType* type = find_block_type(name);
    internal_check(type != nullptr, "GGUF has no type {}", name);
    return *type;
  };
  if (stays_f32(tensor, dims)) return named("F32");
  const BlockType& base = named(file.type);
  if (base.is_float()) return base;
  const BlockType& chosen = named(quantised_type(file, tensor, sizes));
  const auto fits = [&](const BlockType& type) { return dims.back() % type.elements == 0; };
  if (fits(chosen)) return chosen;
  const BlockType& smaller = named(smaller_blocks(chosen.name));
  return fits(smaller) ? smaller : named("F16");
}

}  // namespace fettle
