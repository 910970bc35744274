#include "models/float8_storage.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/group_storage.h"

namespace fettle {

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
    out.rows = block[0], out.columns = block[1];
  };
  if (method == "fp8") {
    read_block(at->value("weight_block_size", nlohmann::json()), "weight_block_size");
    if (const nlohmann::json kind = at->value("scale_fmt", nlohmann::json("float")); kind == "ue8m0" || kind == "float")
      return out;
    else
      throw UserError("{}: scale_fmt is {}, wanted float or ue8m0", file, kind.dump());
  }
  if (method != "compressed-tensors" || stored_groups(config, file)) return std::nullopt;
  out.factors = "_scale";
  if (const nlohmann::json transforms = at->value("transform_config", nlohmann::json()); !transforms.empty())
    throw UserError(
        "{}: transform_config in quantization_config is not implemented: activations would have to be rotated while "
        "the "
        "model runs. Use another checkpoint of the model",
        file);
  const nlohmann::json groups = at->value("config_groups", nlohmann::json());
  if (!groups.is_object() || groups.empty())
    throw UserError("{}: quantization_config of compressed-tensors has no config_groups", file);
  for (const auto& [name, group] : groups.items()) {
    const nlohmann::json weights = group.is_object() ? group.value("weights", nlohmann::json()) : nlohmann::json();
    if (!weights.is_object() || weights.value("type", nlohmann::json()) != "float" ||
        weights.value("num_bits", nlohmann::json()) != 8 || weights.value("symmetric", nlohmann::json(true)) != true)
      throw UserError(
          "{}: compressed-tensors weights of {} are not implemented, only symmetric 8-bit floats. Use the original "
          "weights, with quantization_bit: 4 in the recipe if they are too large",
          file, weights.is_object() ? weights.dump() : name);
    read_block(weights.value("block_structure", nlohmann::json()), "block_structure");
  }
  return out;
}

}  // namespace fettle
