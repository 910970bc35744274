#include "models/quantisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/float8_storage.h"
#include "models/group_storage.h"

namespace fettle {

double Quantisation::bits() const {
  if (type == Type::kMxfp4) return 4 + 8.0 / kMxfp4Block;
  if (in_groups()) {
    const double of_group = 8.0 + 8 * static_cast<double>(byte_size(scales));
    return (four_bits() ? 4 : 8) + (group > 0 ? of_group / static_cast<double>(group) : 0);
  }
  if (type == Type::kFloat8 && group > 0) return 8 + 32.0 / static_cast<double>(group * block_rows);
  if (!four_bits()) return 8;
  return 4 + (nested ? 8.0 / kBlock + 32.0 / (kBlock * kNestedBlock) : 32.0 / kBlock);
}

std::string Quantisation::name() const {
  if (type == Type::kMxfp4) return "mxfp4";
  if (in_groups())
    return fmt::format("{} integers with a scale for {}", four_bits() ? "4-bit" : "8-bit",
                       group > 0 ? fmt::format("{} inputs", group) : "each output");
  if (type == Type::kFloat8)
    return group > 0 ? fmt::format("8-bit floats with a factor for {} x {} values", block_rows, group)
                     : "8-bit floats with a factor for each output";
  if (!four_bits()) return "int8";
  const std::string base = type == Type::kNf4 ? "nf4" : "fp4";
  return nested ? base + " with double quantization" : base;
}

bool stores_mxfp4(const nlohmann::json& config) {
  const auto at = config.find("quantization_config");
  return at != config.end() && at->is_object() && at->value("quant_method", nlohmann::json()) == "mxfp4";
}

std::optional<Quantisation> stored_quantisation(const nlohmann::json& config, const std::string& file) {
  const auto at = config.find("quantization_config");
  if (at == config.end() || at->is_null() || stores_mxfp4(config) || stored_groups(config, file) ||
      stored_float8(config, file))
    return std::nullopt;
  const nlohmann::json& q = *at;
  auto text = [&](const char* key, const std::string& otherwise) {
    return q.contains(key) && q[key].is_string() ? q[key].get<std::string>() : otherwise;
  };
  auto flag = [&](const char* key) { return q.contains(key) && q[key].is_boolean() && q[key].get<bool>(); };
  const bool four = flag("load_in_4bit") || flag("_load_in_4bit");
  const bool eight = flag("load_in_8bit") || flag("_load_in_8bit");
  const std::string method = text("quant_method", four || eight ? "bitsandbytes" : "");
  if (method != "bitsandbytes" || four == eight)
    throw UserError(
        "{}: the checkpoint is quantised by '{}' (quantization_config), which is not supported. Supported are "
        "bitsandbytes' 4-bit and 8-bit formats, gptq, awq, GPT-OSS's mxfp4, fp8, and compressed-tensors in packed "
        "integers or 8-bit floats. Use the original weights, with quantization_bit: 4 in the recipe if they are too "
        "large",
        file, method.empty() ? q.dump() : method);
  if (eight) return Quantisation{Quantisation::Type::kInt8, false};
  const std::string type = text("bnb_4bit_quant_type", "fp4"), storage = text("bnb_4bit_quant_storage", "uint8");
  if (type != "nf4" && type != "fp4")
    throw UserError("{}: bnb_4bit_quant_type '{}' is not supported; wanted nf4 or fp4", file, type);
  if (storage != "uint8")
    throw UserError("{}: bnb_4bit_quant_storage '{}' is not supported; wanted uint8", file, storage);
  return Quantisation{type == "nf4" ? Quantisation::Type::kNf4 : Quantisation::Type::kFp4,
                      flag("bnb_4bit_use_double_quant")};
}

std::vector<ModuleRule> modules_in_floats(const nlohmann::json& config, const std::string& file) {
  const nlohmann::json names = config.at("quantization_config").value("llm_int8_skip_modules", nlohmann::json());
  std::vector<ModuleRule> out;
  if (names.is_null()) return out;
  if (!names.is_array() || !std::ranges::all_of(names, [](const auto& name) { return name.is_string(); }))
    throw UserError("{}: llm_int8_skip_modules is {} in quantization_config, wanted a list of names", file,
                    names.dump());
  for (const nlohmann::json& name : names) out.push_back(module_rule(name, ModuleRule::Match::kPart, file));
  return out;
}

}  // namespace fettle
