#include "models/group_storage.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "models/quantization_config.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

// Sets the bits, which must be among `known`, and the size of the groups.
void read_sizes(const QuantizationSettings& settings, GroupStorage& out, const char* bits_key,
                const std::vector<int64_t>& known, const std::string& wanted) {
  if (!settings.has(bits_key)) settings.refuse(bits_key, nullptr, wanted);
  out.bits = settings.integer(bits_key, 4);
  if (std::ranges::find(known, out.bits) == known.end()) settings.refuse(bits_key, out.bits, wanted);
  constexpr int64_t kMostInputs = int64_t{1} << 40;
  const int64_t group = settings.integer("group_size", 128);
  const Json stated = settings.at("group_size", 128);
  if ((group != -1 && group < 2) || group > kMostInputs || stated > kMostInputs)
    settings.refuse("group_size", stated, "-1 (all inputs) or at least 2");
  out.group = std::max<int64_t>(group, 0);
}

// Reads the modules that are left out: the list modules_to_not_convert, and GPTQModel's rules for single modules in
// `dynamic`. There, "-:PATTERN" leaves modules out. Other rules change bits or group size, and are refused.
void read_excluded(const QuantizationSettings& settings, GroupStorage& out) {
  out.excluded = settings.modules("modules_to_not_convert", ModuleRule::Match::kPart);
  const Json rules = settings.at("dynamic", Json::object());
  if (!rules.is_object()) settings.refuse("dynamic", rules, "an object");
  for (const auto& [pattern, change] : rules.items()) {
    const bool leaves_out = pattern.starts_with("-:");
    if (!leaves_out && !(change.is_object() && change.empty()))
      settings.refuse("dynamic", rules, "one number of bits and one group size for all modules");
    if (leaves_out)
      out.excluded.push_back(module_rule("re:" + pattern.substr(2), ModuleRule::Match::kName, settings.file()));
  }
}

}  // namespace

GroupStorage read_gptq(const QuantizationSettings& settings) {
  GroupStorage out;
  out.packing = GroupStorage::Packing::kGptq;
  read_sizes(settings, out, "bits", {2, 3, 4, 8}, "2, 3, 4 or 8");
  out.any_order = settings.flag("desc_act", false) && out.group > 0;
  const std::string format = settings.text("checkpoint_format", settings.text("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") settings.refuse("checkpoint_format", format, "gptq or gptq_v2");
  out.zero_less_one = format == "gptq";
  if (settings.flag("is_marlin_format", false)) settings.refuse("is_marlin_format", true, "false");
  if (settings.text("pack_dtype", "int32") != "int32")
    settings.refuse("pack_dtype", settings.at("pack_dtype", nullptr), "int32");
  read_excluded(settings, out);
  out.only = settings.texts("modules_in_block_to_quantize");
  return out;
}

GroupStorage read_awq(const QuantizationSettings& settings) {
  GroupStorage out;
  const std::string version = settings.text("version", settings.text("format", "gemm"));
  if (version != "gemm" && version != "gemv") settings.refuse("version", version, "gemm or gemv");
  out.packing = version == "gemm" ? GroupStorage::Packing::kAwqGemm : GroupStorage::Packing::kAwqGemv;
  read_sizes(settings, out, settings.has("bits") ? "bits" : "w_bit", {4}, "4");
  if (settings.has("q_group_size") && !settings.has("group_size"))
    settings.refuse("q_group_size", settings.at("q_group_size", nullptr), "the key group_size instead");
  if (const std::string backend = settings.text("backend", "autoawq"); backend == "llm-awq")
    settings.refuse("backend", backend, "autoawq");
  read_excluded(settings, out);
  return out;
}

GroupStorage read_packed(const QuantizationSettings& settings) {
  GroupStorage out;
  const Json groups = settings.at("config_groups", nullptr);
  const Json& first = groups.front();
  const Json& weights = first.at("weights");
  if (const Json targets = first.value("targets", Json::array({"Linear"}));
      targets != Json::array({"Linear"}) && targets != Json())
    settings.refuse("targets", targets, "Linear, for all linear layers except those in `ignore`");
  if (groups.size() > 1)
    settings.refuse("config_groups", groups, "one group, with one number of bits for all linear layers");
  if (first.contains("input_activations") && !first["input_activations"].is_null())
    settings.refuse("input_activations", first["input_activations"],
                    "null, because Fettle does not quantise activations");
  const std::string format = settings.text("format", settings.text("quant_format", ""));
  if (format != "pack-quantized") settings.refuse("format", format, "pack-quantized, for weights of integers");
  const QuantizationSettings of_weights(weights, settings.file());
  out.packing = GroupStorage::Packing::kPacked;
  const std::string strategy = of_weights.text("strategy", of_weights.has("group_size") ? "group" : "channel");
  if (strategy != "group" && strategy != "channel") of_weights.refuse("strategy", strategy, "group or channel");
  read_sizes(of_weights, out, "num_bits", {4, 8}, "4 or 8");
  if (strategy == "channel") out.group = 0;
  const Json stated = of_weights.at("actorder", false);
  const std::string order =
      stated.is_boolean() ? (stated == true ? "group" : "weight") : of_weights.text("actorder", "");
  if (!std::set<std::string>{"group", "dynamic", "weight", "static"}.contains(order))
    of_weights.refuse("actorder", stated, "group, dynamic, weight, static or null");
  out.any_order = out.group > 0 && (order == "group" || order == "dynamic");
  out.excluded = settings.modules("ignore", ModuleRule::Match::kName);
  return out;
}

Quantisation GroupStorage::format() const {
  return {.type = bits == 8 ? Quantisation::Type::kGroups8 : Quantisation::Type::kGroups4,
          .nested = false,
          .group = group,
          .any_order = any_order,
          .scales = dtype};
}

std::vector<int64_t> GroupStorage::covered_layers(const Param& param) const {
  return layers_of_modules(param, [this](const std::string& module) {
    if (std::ranges::any_of(excluded, [&](const ModuleRule& rule) { return rule.names(module); })) return false;
    return only.empty() || std::ranges::any_of(only, [&](const std::string& part) { return module.ends_with(part); });
  });
}

}  // namespace fettle
