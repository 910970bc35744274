#include "config/foreign/dialect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/foreign/axolotl/axolotl.h"
#include "config/foreign/other_defaults.h"
#include "config/foreign/torchtune.h"
#include "config/foreign/trl.h"
#include "config/keys.h"
#include "config/yaml_text.h"

namespace fettle {
namespace {

bool has(const YAML::Node& root, const char* key) {
  return root[key].IsDefined();
}

bool is_v1(const YAML::Node& root) {
  return has(root, "model") && (has(root, "model_class") || has(root, "peft_config") || has(root, "dist_config"));
}

Dialect read_v1(const YAML::Node& root, const YAML::Node& all) {
  Dialect out{.tool = "LLaMA-Factory v1"};
  auto usual = [&](const char* key, const char* value) { out.usual.emplace_back(key, YAML::Node(value)); };
  const YAML::Node method = root["peft_config"];
  const bool adapts = method.IsDefined() && method.IsMap();
  if (!adapts) usual("finetuning_type", "full");
  if (adapts && method["name"].IsDefined() && method["name"].IsScalar() && method["name"].Scalar() == "lora") {
    usual("lora_alpha", "16");
    usual("lora_dropout", "0.05");
  }
  usual("per_device_train_batch_size", "1");
  usual("learning_rate", "1e-4");
  usual("lr_scheduler_type", "constant");
  usual("bf16", "true");
  usual("logging_steps", "1");
  if (!root["optim_config"].IsDefined()) usual("weight_decay", "0.01");
  if (!has(all, "save_steps") || all["save_steps"].IsNull()) usual("save_strategy", "no");
  usual("max_new_tokens", "128");
  return out;
}

}  // namespace

std::optional<Dialect> read_dialect(const YAML::Node& root, const YAML::Node& all, const std::string& file) {
  if (is_v1(root)) return read_v1(root, all);
  if (is_axolotl(root)) return read_axolotl(root, all, file);
  if (is_torchtune(root)) return read_torchtune(root, all, file);
  if (const auto other = read_other_defaults(root, all, file)) return other;
  if (is_trl(root.size() > 0 ? root : all, all)) return read_trl(root, all, file);
  if (has(root, "model") && has(root, "train_dataset")) return read_v1(root, all);
  warn_of_unset_method(all);
  return std::nullopt;
}

YAML::Node override_of(const YAML::Node& root, const YAML::Node& all, std::string_view key) {
  for (const auto& pair : all) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const Key* known = find_key(name);
    const bool in_file = root[name].IsDefined() && pair.second.is(root[name]);
    if (known != nullptr && known->name == key && !in_file) return pair.second;
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

bool is_overridden(const YAML::Node& root, const YAML::Node& all, std::string_view key) {
  return override_of(root, all, key).IsDefined();
}

std::vector<std::string> listed_sets(const YAML::Node& list, const std::string& file) {
  std::vector<std::string> out;
  if (!list.IsMap())
    throw UserError("{}: found {}, wanted a map of data set names", file,
                    list.IsSequence() ? "a list"
                    : list.IsScalar() ? "one value"
                                      : "nothing");
  for (const auto& item : list) {
    const std::string name = item.first.Scalar(), where = fmt::format("{}:{}", file, item.first.Mark().line + 1);
    if (!item.second.IsMap() || !item.second["path"].IsDefined())
      throw UserError("{}: the data set {} has no `path`; add it", where, name);
    nlohmann::ordered_json entry = nlohmann::ordered_json::object();
    for (const auto& field : item.second) {
      const std::string key = field.first.Scalar(), value = field.second.IsScalar() ? field.second.Scalar() : "";
      if (field.second.IsNull() || key == "source" || key == "streaming") continue;
      if (key == "path") {
        const bool scope = item.second["source"].IsDefined() && item.second["source"].Scalar() == "ms_hub";
        entry[scope ? "ms_hub_url" : "hf_hub_url"] = value;
      } else if (key == "split" || key == "subset") {
        entry[key] = value;
      } else if (key == "size") {
        int64_t size = 0;
        if (!YAML::convert<int64_t>::decode(field.second, size))
          throw UserError("{}: size of the data set {}: found '{}', wanted a whole number", where, name, value);
        entry["num_samples"] = size;
      } else if (key == "converter" && value == "pair") {
        entry["ranking"] = true;
      } else if (key == "converter" && (value == "alpaca" || value == "sharegpt")) {
        // The format is detected from the columns.
      } else if (double weight = 0;
                 key == "weight" && YAML::convert<double>::decode(field.second, weight) && weight == 1) {
      } else {
        throw UserError(
            "{}: '{}: {}' of the data set {} is not available; remove it, or describe the data set in "
            "dataset_info.json",
            where, key, value, name);
      }
    }
    out.push_back(entry.dump());
  }
  return out;
}

}  // namespace fettle
