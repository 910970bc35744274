#include "models/float8_storage.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "models/quantization_config.h"

namespace fettle {
namespace {

// Reads the rows and columns of a block, if the field is there.
void read_block(const QuantizationSettings& settings, const char* key, Float8Storage& out) {
  if (!settings.has(key)) return;
  const nlohmann::json block = settings.at(key, nullptr);
  const bool two = block.is_array() && block.size() == 2 && block[0].is_number_integer() &&
                   block[1].is_number_integer() && block[0] > 0 && block[1] > 0;
  if (!two) settings.refuse(key, block, "two positive integers");
  out.rows = block[0], out.columns = block[1], out.in_blocks = true;
}

}  // namespace

Quantisation Float8Storage::format() const {
  return {.type = Quantisation::Type::kFloat8,
          .nested = false,
          .group = in_blocks ? columns : 0,
          .block_rows = in_blocks ? rows : 1};
}

std::vector<int64_t> Float8Storage::covered_layers(const Param& param) const {
  return layers_of_modules(param, [this](const std::string& module) { return !any_names(excluded, module); });
}

Float8Storage read_fp8(const QuantizationSettings& settings) {
  Float8Storage out;
  // One factor for each whole weight: weight_block_size is null, or AutoFP8 wrote the checkpoint.
  out.in_blocks = !settings.given("weight_block_size") && !settings.given("ignored_layers");
  read_block(settings, "weight_block_size", out);
  for (const char* key : {"modules_to_not_convert", "ignored_layers"})
    for (ModuleRule& rule : settings.modules(key, ModuleRule::Match::kPart)) out.excluded.push_back(std::move(rule));
  if (const std::string kind = settings.text("scale_fmt", "float"); kind != "ue8m0" && kind != "float")
    settings.refuse("scale_fmt", kind, "float or ue8m0");
  return out;
}

Float8Storage read_compressed_floats(const QuantizationSettings& settings) {
  Float8Storage out{.factors = "_scale", .in_blocks = false};
  out.excluded = settings.modules("ignore", ModuleRule::Match::kName);
  const nlohmann::json groups = settings.at("config_groups", nullptr);
  const nlohmann::json all_linear = nlohmann::json::array({"Linear"});
  std::set<std::string> blocks;
  for (const auto& [name, group] : groups.items()) {
    const nlohmann::json weights = group.is_object() ? group.value("weights", nlohmann::json()) : nlohmann::json();
    if (!weights.is_object() || weights.value("type", nlohmann::json()) != "float" ||
        weights.value("num_bits", nlohmann::json()) != 8 || weights.value("symmetric", nlohmann::json(true)) != true)
      throw UserError(
          "{}: compressed-tensors with weights {} is not implemented; wanted symmetric 8-bit floats. Use the original "
          "weights; if they are too large, also set quantization_bit: 4 in the recipe",
          settings.file(), weights.is_object() ? weights.dump() : name);
    const QuantizationSettings of_weights(weights, settings.file());
    read_block(of_weights, "block_structure", out);
    blocks.insert(of_weights.at("block_structure", nullptr).dump());
    out.uniform = out.uniform && blocks.size() == 1 && group.value("targets", nlohmann::json(all_linear)) == all_linear;
  }
  return out;
}

}  // namespace fettle
