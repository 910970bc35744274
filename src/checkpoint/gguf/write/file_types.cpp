#include "checkpoint/gguf/write/file_types.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace fettle {
namespace {

constexpr GgufFileType kFileTypes[] = {
    {"f32", "F32", 0, "F32"},         {"f16", "F16", 1, "F16"},
    {"bf16", "BF16", 32, "BF16"},     {"q8_0", "Q8_0", 7, "Q8_0"},
    {"q6_k", "Q6_K", 18, "Q6_K"},     {"q5_k_m", "Q5_K_M", 17, "Q5_K"},
    {"q5_k_s", "Q5_K_S", 16, "Q5_K"}, {"q5_1", "Q5_1", 9, "Q5_1"},
    {"q5_0", "Q5_0", 8, "Q5_0"},      {"q4_k_m", "Q4_K_M", 15, "Q4_K"},
    {"q4_k_s", "Q4_K_S", 14, "Q4_K"}, {"q4_1", "Q4_1", 3, "Q4_1"},
    {"q4_0", "Q4_0", 2, "Q4_0"},      {"mxfp4_moe", "MXFP4_MOE", 38, "MXFP4"},
    {"q3_k_l", "Q3_K_L", 13, "Q3_K"}, {"q3_k_m", "Q3_K_M", 12, "Q3_K"},
    {"q3_k_s", "Q3_K_S", 11, "Q3_K"}, {"q2_k", "Q2_K", 10, "Q2_K"},
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

// Returns true for the first and the last eighth of `count` layers, and for every third layer between them.
bool matters_more(int64_t layer, int64_t count) {
  return layer < count / 8 || layer >= 7 * count / 8 || (layer - count / 8) % 3 == 2;
}

// Returns the place of the layer in the list. An empty list stands for all layers.
int64_t place_in(const std::vector<int64_t>& layers, int64_t layer) {
  return layers.empty() ? layer : std::ranges::lower_bound(layers, layer) - layers.begin();
}

std::string_view type_of_values(const GgufFileType& file, int64_t layer, const GgufSizes& sizes) {
  if (sizes.experts == 8) return "Q8_0";
  const int64_t place = place_in(sizes.value_layers, layer);
  const int64_t count = sizes.value_layers.empty() ? sizes.layers : std::ssize(sizes.value_layers);
  std::string_view type = file.type;
  if (file.name == "Q2_K") type = sizes.queries_per_key >= 4 ? "Q4_K" : "Q3_K";
  if (file.name == "Q3_K_M") type = place < 2 ? "Q5_K" : "Q4_K";
  if (file.name == "Q3_K_L") type = "Q5_K";
  if (file.name == "Q4_K_S" && place < 4) type = "Q5_K";
  if ((file.name == "Q4_K_M" || file.name == "Q5_K_M") && matters_more(place, count)) type = "Q6_K";
  return sizes.is_70b && (type == "Q3_K" || type == "Q4_K") ? "Q5_K" : type;
}

std::string_view type_of_down(const GgufFileType& file, int64_t layer, const GgufSizes& sizes) {
  // For models with experts, llama.cpp uses the layer's number; for others, the number of ffn_down tensors before this
  // one.
  const int64_t place = sizes.experts > 1 ? layer : place_in(sizes.down_layers, layer);
  if (file.name == "Q2_K") return "Q3_K";
  if (file.name == "Q3_K_M") return place < sizes.layers / 16 ? "Q5_K" : "Q4_K";
  if (file.name == "Q3_K_L") return "Q5_K";
  if (file.name == "Q4_K_S" && place < sizes.layers / 8) return "Q5_K";
  if ((file.name == "Q4_K_M" || file.name == "Q5_K_M") && matters_more(place, sizes.layers)) return "Q6_K";
  return file.type;
}

std::string_view type_of_output(const GgufFileType& file, const GgufSizes& sizes) {
  if (sizes.experts == 8) {
    const bool few_bits = file.type == "Q2_K" || file.name == "Q3_K_S" || file.name == "Q3_K_M" || file.type == "Q4_K";
    return few_bits ? "Q5_K" : file.type;
  }
  if (file.name == "Q2_K") return "Q3_K";
  if (file.name == "Q3_K_M") return "Q4_K";
  return file.name == "Q3_K_L" ? "Q5_K" : file.type;
}

std::string_view quantised_type(const GgufFileType& file, const std::string& tensor, const Dims& dims,
                                const GgufSizes& sizes) {
  const bool embedding = tensor == "token_embd.weight" || tensor == "per_layer_token_embd.weight";
  const bool head = tensor == "output.weight" || (embedding && sizes.tied);
  // llama.cpp quantises this tensor only in a file of type Q8_0. In all other files, the tensor stays F16.
  if (tensor == "per_layer_model_proj.weight" && file.type != "Q8_0") return "F16";
  if (file.type == "MXFP4") return !head && dims.size() > 2 && dims[0] > 1 ? "MXFP4" : "Q8_0";
  if (head) return file.type == "Q8_0" ? "Q8_0" : "Q6_K";
  if (embedding) return file.type;
  const int64_t layer = tensor.starts_with("blk.") ? std::atoll(tensor.c_str() + 4) : 0;
  if (has_part(tensor, "attn_v.weight") || has_part(tensor, "attn_qkv.weight"))
    return type_of_values(file, layer, sizes);
  if (has_part(tensor, "attn_k.weight") && sizes.experts == 8) return "Q8_0";
  if (has_part(tensor, "ffn_down")) return type_of_down(file, layer, sizes);
  if (has_part(tensor, "attn_output.weight")) return type_of_output(file, sizes);
  return file.type;
}

// Returns the type with smaller blocks that replaces `type` when a row does not consist of whole blocks of `type`.
std::string_view smaller_blocks(std::string_view type) {
  if (type == "Q2_K" || type == "Q3_K") return "Q4_0";
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
  const BlockType& chosen = named(quantised_type(file, tensor, dims, sizes));
  const auto fits = [&](const BlockType& type) { return dims.back() % type.elements == 0; };
  if (fits(chosen)) return chosen;
  const BlockType& smaller = named(smaller_blocks(chosen.name));
  return fits(smaller) ? smaller : named("F16");
}

}  // namespace fettle
