#include "models/float8_storage.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "models/group_storage.h"

namespace fettle {

Quantisation Float8Storage::format() const {
  return {.type = Quantisation::Type::kFloat8,
          .nested = false,
          .group = in_blocks ? columns : 0,
          .block_rows = in_blocks ? rows : 1};
}

std::vector<int64_t> Float8Storage::covered_layers(const Param& param) const {
  return layers_of_modules(param, [this](const std::string& module) { return !any_names(excluded, module); });
}

std::optional<Float8Storage> stored_float8(const nlohmann::json& config, const std::string& file) {
  const auto at = config.find("quantization_config");
  if (at == config.end() || !at->is_object()) return std::nullopt;
  const nlohmann::json method = at->value("quant_method", nlohmann::json());
  Float8Storage out;
  auto read_block = [&](const nlohmann::json& block, const char* key) {
    if (block.is_null()) return;
    const bool two = block.is_array() && block.size() == 2 && block[0].is_number_integer() &&
                     block[1].is_number_integer() && block[0] > 0 && block[1] > 0;
    if (!two) throw UserError("{}: '{}' is {}, wanted two positive integers", file, key, block.dump());
    out.rows = block[0], out.columns = block[1], out.in_blocks = true;
  };
  auto exclude = [&](const char* key, ModuleRule::Match match) {
    const nlohmann::json names = at->value(key, nlohmann::json());
    if (names.is_null()) return;
    if (!names.is_array() || !std::ranges::all_of(names, [](const auto& name) { return name.is_string(); }))
      throw UserError("{}: {} is {} in quantization_config, wanted a list of names", file, key, names.dump());
    for (const nlohmann::json& name : names) out.excluded.push_back(module_rule(name, match, file));
  };
  if (method == "fp8") {
    // One factor for each whole weight: weight_block_size is null, or AutoFP8 wrote the checkpoint.
    const bool of_autofp8 = at->contains("ignored_layers");
    out.in_blocks = !at->contains("weight_block_size") && !of_autofp8;
    read_block(at->value("weight_block_size", nlohmann::json()), "weight_block_size");
    exclude("modules_to_not_convert", ModuleRule::Match::kPart);
    exclude("ignored_layers", ModuleRule::Match::kPart);
    if (const nlohmann::json kind = at->value("scale_fmt", nlohmann::json("float")); kind == "ue8m0" || kind == "float")
      return out;
    else
      throw UserError("{}: scale_fmt is {}, wanted float or ue8m0", file, kind.dump());
  }
  if (method != "compressed-tensors" || stored_groups(config, file)) return std::nullopt;
  out.factors = "_scale";
  out.in_blocks = false;
  exclude("ignore", ModuleRule::Match::kName);
  if (const nlohmann::json transforms = at->value("transform_config", nlohmann::json()); !transforms.empty())
    throw UserError(
        "{}: transform_config in quantization_config is not implemented: activations would have to be rotated. Use "
        "another checkpoint of the model",
        file);
  const nlohmann::json groups = at->value("config_groups", nlohmann::json());
  if (!groups.is_object() || groups.empty())
    throw UserError("{}: quantization_config of compressed-tensors has no config_groups", file);
  const nlohmann::json all_linear = nlohmann::json::array({"Linear"});
  std::set<std::string> blocks;
  for (const auto& [name, group] : groups.items()) {
    const nlohmann::json weights = group.is_object() ? group.value("weights", nlohmann::json()) : nlohmann::json();
    if (!weights.is_object() || weights.value("type", nlohmann::json()) != "float" ||
        weights.value("num_bits", nlohmann::json()) != 8 || weights.value("symmetric", nlohmann::json(true)) != true)
      throw UserError(
          "{}: compressed-tensors with weights {} is not implemented; wanted symmetric 8-bit floats. Use the original "
          "weights; if they are too large, also set quantization_bit: 4 in the recipe",
          file, weights.is_object() ? weights.dump() : name);
    const nlohmann::json block = weights.value("block_structure", nlohmann::json());
    read_block(block, "block_structure");
    blocks.insert(block.dump());
    out.uniform = out.uniform && blocks.size() == 1 && group.value("targets", nlohmann::json(all_linear)) == all_linear;
  }
  return out;
}

}  // namespace fettle
