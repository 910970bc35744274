#include "export/compressed_export.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/arrays/e4m3.h"
#include "base/error.h"
#include "base/log.h"
#include "export/weights.h"

namespace fettle {
namespace {

constexpr int64_t kSquare = 128;             // rows and columns of a block; also the number of rows read at a time
constexpr float kSmallestFactor = 0x1p-24F;  // the smallest number above 0 that f16 can represent
constexpr float kLargestInt4 = 7.5F;         // in the middle between 7 and the magnitude of -8
constexpr int64_t kInAWord = 8;              // integers of 4 bits in an i32

// The codes and factors of some rows of a weight. A code is the byte of an 8-bit float, or an integer increased by 8.
struct CodedRows {
  std::vector<uint8_t> codes;
  std::vector<float> factors;
};

uint8_t int4_code(float value) {
  return static_cast<uint8_t>(std::clamp(std::nearbyint(value), -8.0F, 7.0F) + 8);
}

std::vector<uint32_t> packed(const std::vector<uint8_t>& codes) {
  std::vector<uint32_t> words(codes.size() / kInAWord);
  for (size_t i = 0; i < codes.size(); ++i) words[i / kInAWord] |= uint32_t{codes[i]} << (4 * (i % kInAWord));
  return words;
}

// Encodes rows of `columns` values as 4-bit integers if `integers` is true, else as e4m3. Each factor is for a block of
// `down` x `across` values; the last blocks may be smaller.
CodedRows encode(std::span<const float> values, int64_t columns, int64_t down, int64_t across, DType factor_dtype,
                 bool integers) {
  const auto rows = static_cast<int64_t>(values.size()) / columns;
  const int64_t blocks_down = (rows + down - 1) / down, blocks_across = (columns + across - 1) / across;
  std::vector<float> largest(static_cast<size_t>(blocks_down * blocks_across));
  const auto block_of = [&](int64_t i) {
    return static_cast<size_t>(i / columns / down * blocks_across + i % columns / across);
  };
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    float& most = largest[block_of(i)];
    most = std::max(most, std::abs(values[static_cast<size_t>(i)]));
  }
  HostArray factors({DType::kF32, {static_cast<int64_t>(largest.size())}});
  const float largest_code = integers ? kLargestInt4 : kLargestE4m3;
  std::ranges::transform(largest, factors.as<float>().begin(),
                         [&](float most) { return most == 0 ? 1.0F : std::max(kSmallestFactor, most / largest_code); });
  const HostArray rounded = factors.to(factor_dtype).to(DType::kF32);
  CodedRows out;
  out.factors.assign(rounded.as<float>().begin(), rounded.as<float>().end());
  out.codes.resize(values.size());
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    const float scaled = values[static_cast<size_t>(i)] / out.factors[block_of(i)];
    out.codes[static_cast<size_t>(i)] = integers ? int4_code(scaled) : e4m3_code(scaled);
  }
  return out;
}

}  // namespace

CompressedScheme compressed_scheme(const std::string& name) {
  internal_check(name == "fp8_dynamic" || name == "fp8_block" || name == "w4a16",
                 "export_quantization has no value '{}'", name);
  return name == "w4a16"       ? CompressedScheme::kGroups
         : name == "fp8_block" ? CompressedScheme::kBlocks
                               : CompressedScheme::kRows;
}

CompressedExport::CompressedExport(CompressedScheme scheme, DType factors, const Model& model, const BaseTensors& base,
                                   bool carries_more, const std::string& model_name)
    : scheme_(scheme), factors_(factors) {
  const auto refuse = [&](const char* why) {
    throw UserError(
        "{}: export_quantization cannot store this model: {}. Remove export_quantization to export 16- "
        "or 32-bit weights",
        model_name, why);
  };
  if (model.classifies() || model.family->encoder) refuse("it is a classifier or an encoder");
  if (model.family->fan_in_fan_out) refuse("its layers are not of the kind 'Linear'");
  if (carries_more)
    refuse(
        "its checkpoint has a part that Fettle only copies (for images or audio, or layers that predict further "
        "tokens)");
  for (const Param& param : model.params) {
    if (param.has_experts() && !param.of_experts()) refuse("the experts of a layer are in one tensor");
    const bool linear = param.role == Role::kLinear || param.of_experts();
    for (int64_t i = 0; i < param.stored_count(); ++i)
      if (const std::string name = param.stored_name(i); base.contains(name)) {
        const BaseTensor& tensor = base.find(name);
        if (tensor.shape.dims.size() != 2) continue;
        // A gate with one output keeps its dtype, because programs that serve models read it as floats.
        if (linear && tensor.shape.dims[0] > 1)
          weights_.insert(name);
        else if (!param.is_embedding())
          ignored_.insert(module_of(name));
      }
  }
  ignored_.insert(model.family->head);  // the head is a Linear module even if it uses the embedding's weight
  if (packs()) choose_group(base, model_name);
  if (scheme_ == CompressedScheme::kBlocks) warn_of_blocks(base);
}

// Warns if the rows of a weight do not fill whole blocks. vLLM stacks the rows of q, k and v into one weight, and the
// rows of gate and up into another. A block may have rows of only one original weight.
void CompressedExport::warn_of_blocks(const BaseTensors& base) const {
  for (const std::string& name : weights_)
    if (base.find(name).shape.dims[0] % kSquare != 0) {
      warn(
          "export_quantization: fp8_block: {} has {} rows, not a multiple of {}, so vLLM may refuse this model; "
          "fp8_dynamic has no such limit",
          name, base.find(name).shape.dims[0], kSquare);
      return;
    }
}

// Chooses the largest group size that divides the row lengths of all weights.
void CompressedExport::choose_group(const BaseTensors& base, const std::string& model_name) {
  const auto divides = [&](int64_t size) {
    return std::ranges::all_of(weights_,
                               [&](const std::string& name) { return base.find(name).shape.dims[1] % size == 0; });
  };
  for (const int64_t size : {128, 64, 32})
    if (divides(size)) {
      group_ = size;
      return;
    }
  throw UserError(
      "{}: export_quantization: w4a16 needs weights whose number of inputs is a multiple of 32; use fp8_dynamic",
      model_name);
}

int64_t CompressedExport::block_rows() const {
  return scheme_ == CompressedScheme::kBlocks ? kSquare : 1;
}

int64_t CompressedExport::block_columns(int64_t columns) const {
  return packs() ? group_ : scheme_ == CompressedScheme::kBlocks ? kSquare : columns;
}

NamedShapes CompressedExport::shapes(const BaseTensor& tensor) const {
  const Dims& dims = tensor.shape.dims;
  const int64_t down = block_rows(), across = block_columns(dims[1]);
  const Shape factors{factors_, {(dims[0] + down - 1) / down, (dims[1] + across - 1) / across}};
  if (packs())
    return {{tensor.name + "_packed", {DType::kI32, {dims[0], dims[1] / kInAWord}}},
            {tensor.name + "_scale", factors},
            {tensor.name + "_shape", {DType::kI64, {2}}}};
  return {{tensor.name, {DType::kF8E4M3FN, dims}}, {tensor.name + "_scale", factors}};
}

void CompressedExport::write(const MergedTensor& merged, const BaseTensor& tensor, ModelWriter& writer,
                             MergeCount& count) const {
  const int64_t rows = merged.dims()[0], columns = merged.dims()[1];
  const int64_t down = block_rows(), across = block_columns(columns);
  bool changed = false;
  int64_t factors_done = 0;
  for (int64_t first = 0; first < rows; first += kSquare) {
    const Box box{{first, 0}, {std::min(kSquare, rows - first), columns}};
    const MergedTensor::Values values = merged.read(box);
    const std::span<const float> after = values.after.as<float>();
    if (const auto bad = std::ranges::find_if(after, [](float value) { return !std::isfinite(value); });
        bad != after.end())
      throw UserError("'{}' has the value {}, which export_quantization cannot represent", tensor.name, *bad);
    const CodedRows coded = encode(after, columns, down, across, factors_, packs());
    if (merged.merges() && !std::ranges::equal(values.before.as<float>(), after)) {
      count.nonzero = true;
      const CodedRows before = encode(values.before.as<float>(), columns, down, across, factors_, packs());
      changed |= before.codes != coded.codes || before.factors != coded.factors;
    }
    if (packs()) {
      const std::vector<uint32_t> words = packed(coded.codes);
      writer.write(tensor.name + "_packed", std::as_bytes(std::span(words)), first * columns / 2);
    } else {
      writer.write(tensor.name, std::as_bytes(std::span(coded.codes)), first * columns);
    }
    const auto factor_count = static_cast<int64_t>(coded.factors.size());
    const HostArray factors = HostArray::from<float>({DType::kF32, {factor_count}}, coded.factors).to(factors_);
    writer.write(tensor.name + "_scale", {factors.data(), static_cast<size_t>(factors.bytes())},
                 factors_done * byte_size(factors_));
    factors_done += factor_count;
  }
  if (packs()) writer.write(tensor.name + "_shape", std::as_bytes(std::span(merged.dims())));
  count.tensors += changed;
  if (merged.merges()) count.narrowest = DType::kF8E4M3FN;
  merged.stored().file->release(*merged.stored().entry);
}

nlohmann::json CompressedExport::config() const {
  nlohmann::json weights{
      {"num_bits", packs() ? 4 : 8}, {"type", packs() ? "int" : "float"}, {"symmetric", true}, {"dynamic", false}};
  nlohmann::json activations{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"dynamic", true}};
  if (packs()) {
    weights["strategy"] = "group";
    weights["group_size"] = group_;
    activations = nullptr;
  } else if (scheme_ == CompressedScheme::kBlocks) {
    weights["strategy"] = "block";
    weights["block_structure"] = {kSquare, kSquare};
    activations["strategy"] = "group";
    activations["group_size"] = kSquare;
  } else {
    weights["strategy"] = "channel";
    activations["strategy"] = "token";
  }
  const nlohmann::json group{{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}};
  return {{"quant_method", "compressed-tensors"},
          {"format", packs() ? "pack-quantized" : "float-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", ignored_},
          {"config_groups", {{"group_0", group}}}};
}

}  // namespace fettle
