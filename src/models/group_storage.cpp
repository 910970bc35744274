#include "models/group_storage.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/config.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

// Reads fields of quantization_config. Null counts as missing.
class Settings {
 public:
  Settings(const Json& json, const std::string& file) : json_(json), file_(file) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  Json at(const char* key, const Json& otherwise) const { return has(key) ? json_[key] : otherwise; }
  int64_t integer(const char* key, int64_t otherwise) const {
    const Json value = at(key, otherwise);
    if (!value.is_number_integer()) refuse(key, value, "an integer");
    return value;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json value = at(key, otherwise);
    if (!value.is_boolean()) refuse(key, value, "true or false");
    return value;
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json value = at(key, otherwise);
    if (!value.is_string()) refuse(key, value, "a string");
    return lower_case(value);
  }
  // Returns the strings in a list or in the lists within it.
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    const Json list = at(key, Json::array());
    if (!list.is_array()) refuse(key, list, "a list of names");
    for (const Json& item : list)
      for (const Json& name : item.is_array() ? item : Json::array({item}))
        if (name.is_string())
          out.push_back(name);
        else
          refuse(key, list, "a list of names");
    return out;
  }
  [[noreturn]] void refuse(const char* key, const Json& value, const std::string& wanted) const {
    throw UserError(
        "{}: {} is {} in quantization_config, wanted {}. Use another checkpoint of the model, or its original weights. "
        "If the original weights are too large, set quantization_bit: 4",
        file_, key, value.dump(), wanted);
  }
  // Sets the bits, which must be among `known`, and the size of the groups.
  void read_sizes(GroupStorage& out, const char* bits_key, const std::vector<int64_t>& known,
                  const std::string& wanted) const {
    if (!has(bits_key)) refuse(bits_key, nullptr, wanted);
    out.bits = integer(bits_key, 4);
    if (std::ranges::find(known, out.bits) == known.end()) refuse(bits_key, out.bits, wanted);
    constexpr int64_t kMostInputs = int64_t{1} << 40;
    const int64_t group = integer("group_size", 128);
    if ((group != -1 && group < 2) || group > kMostInputs || at("group_size", 128) > kMostInputs)
      refuse("group_size", at("group_size", 128), "-1 (all inputs) or at least 2");
    out.group = std::max<int64_t>(group, 0);
  }

 private:
  const Json& json_;
  const std::string& file_;
};

void read_gptq(const Settings& settings, const std::string& file, GroupStorage& out) {
  out.packing = GroupStorage::Packing::kGptq;
  settings.read_sizes(out, "bits", {2, 3, 4, 8}, "2, 3, 4 or 8");
  out.any_order = settings.flag("desc_act", false) && out.group > 0;
  const std::string format = settings.text("checkpoint_format", settings.text("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2") settings.refuse("checkpoint_format", format, "gptq or gptq_v2");
  out.zero_less_one = format == "gptq";
  if (settings.flag("is_marlin_format", false)) settings.refuse("is_marlin_format", true, "false");
  if (settings.text("pack_dtype", "int32") != "int32")
    settings.refuse("pack_dtype", settings.at("pack_dtype", nullptr), "int32");
  // GPTQModel's rules for single modules: "-:PATTERN" leaves modules out, other rules change bits or group size.
  const Json rules = settings.at("dynamic", Json::object());
  if (!rules.is_object()) settings.refuse("dynamic", rules, "an object");
  for (const auto& [pattern, change] : rules.items()) {
    const bool leaves_out = pattern.starts_with("-:");
    if (!leaves_out && !(change.is_object() && change.empty()))
      settings.refuse("dynamic", rules, "one number of bits and one group size for all modules");
    if (leaves_out) out.excluded.push_back(module_rule("re:" + pattern.substr(2), ModuleRule::Match::kName, file));
  }
  out.only = settings.texts("modules_in_block_to_quantize");
}

void read_awq(const Settings& settings, const std::string& file, GroupStorage& out) {
  const std::string version = settings.text("version", settings.text("format", "gemm"));
  if (version != "gemm" && version != "gemv") settings.refuse("version", version, "gemm or gemv");
  out.packing = version == "gemm" ? GroupStorage::Packing::kAwqGemm : GroupStorage::Packing::kAwqGemv;
  settings.read_sizes(out, settings.has("bits") ? "bits" : "w_bit", {4}, "4");
  if (settings.has("q_group_size") && !settings.has("group_size"))
    settings.refuse("q_group_size", settings.at("q_group_size", nullptr), "the key group_size instead");
  if (const std::string backend = settings.text("backend", "autoawq"); backend == "llm-awq")
    settings.refuse("backend", backend, "autoawq");
  for (const std::string& part : settings.texts("modules_to_not_convert"))
    out.excluded.push_back(module_rule(part, ModuleRule::Match::kPart, file));
}

// Reads compressed-tensors' config. Returns false when its weights are not packed integers.
bool read_packed(const Settings& settings, const std::string& file, GroupStorage& out) {
  if (const Json transforms = settings.at("transform_config", Json()); !transforms.empty())
    settings.refuse("transform_config", transforms, "none, because Fettle does not rotate activations");
  const Json groups = settings.at("config_groups", nullptr);
  if (!groups.is_object() || groups.empty()) return false;
  const Json& first = *groups.begin();
  const Json weights = first.is_object() ? first.value("weights", Json()) : Json();
  if (!weights.is_object() || weights.value("type", Json("int")) != "int") return false;
  if (const Json targets = first.is_object() ? first.value("targets", Json::array({"Linear"})) : Json();
      targets != Json::array({"Linear"}) && targets != Json())
    settings.refuse("targets", targets, "Linear, for all linear layers except those in `ignore`");
  if (groups.size() > 1)
    settings.refuse("config_groups", groups, "one group, with one number of bits for all linear layers");
  if (first.contains("input_activations") && !first["input_activations"].is_null())
    settings.refuse("input_activations", first["input_activations"],
                    "null, because Fettle does not quantise activations");
  const std::string format = settings.text("format", settings.text("quant_format", ""));
  if (format != "pack-quantized") settings.refuse("format", format, "pack-quantized, for weights of integers");
  const Settings of_weights(weights, file);
  out.packing = GroupStorage::Packing::kPacked;
  const std::string strategy = of_weights.text("strategy", of_weights.has("group_size") ? "group" : "channel");
  if (strategy != "group" && strategy != "channel") of_weights.refuse("strategy", strategy, "group or channel");
  of_weights.read_sizes(out, "num_bits", {4, 8}, "4 or 8");
  if (strategy == "channel") out.group = 0;
  const Json order = of_weights.at("actorder", nullptr);
  out.any_order = out.group > 0 && (order == "group" || order == true);
  for (const std::string& name : settings.texts("ignore"))
    out.excluded.push_back(module_rule(name, ModuleRule::Match::kName, file));
  return true;
}

}  // namespace

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

std::optional<GroupStorage> stored_groups(const Json& config, const std::string& file) {
  const auto at = config.find("quantization_config");
  if (at == config.end() || !at->is_object()) return std::nullopt;
  const Json method = at->value("quant_method", Json());
  const Settings settings(*at, file);
  GroupStorage out;
  if (method == "gptq")
    read_gptq(settings, file, out);
  else if (method == "awq")
    read_awq(settings, file, out);
  else if (method != "compressed-tensors" || !read_packed(settings, file, out))
    return std::nullopt;
  for (const Json* level : {&text_level(config), &config})
    for (const char* key : {"torch_dtype", "dtype"})
      if (const auto stated = level->find(key); stated != level->end() && stated->is_string())
        out.dtype = dtype_from_hf(stated->get<std::string>());
  return out;
}

}  // namespace fettle
