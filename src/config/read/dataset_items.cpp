#include "config/read/dataset_items.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/foreign/dialect.h"
#include "config/value.h"
#include "config/yaml_text.h"

namespace fettle {
namespace {

nlohmann::ordered_json json_of(const YAML::Node& node) {
  if (node.IsMap()) {
    auto out = nlohmann::ordered_json::object();
    for (const auto& pair : node) out[key_text(pair.first)] = json_of(pair.second);
    return out;
  }
  if (node.IsSequence()) {
    auto out = nlohmann::ordered_json::array();
    for (const auto& item : node) out.push_back(json_of(item));
    return out;
  }
  if (node.IsNull()) return nullptr;
  const std::string text = node.Scalar();
  if (text == "true" || text == "false") return text == "true";
  if (const std::optional<int64_t> number = digits_value(text)) return *number;
  return text;
}

}  // namespace

YAML::Node dataset_items(const YAML::Node& value) {
  std::vector<YAML::Node> items;
  if (value.IsSequence())
    for (const auto& item : value) items.push_back(item);
  else
    items.push_back(value);
  YAML::Node out(YAML::NodeType::Sequence);
  bool changed = false;
  for (const YAML::Node& item : items) {
    const std::string text = item.IsScalar() ? item.Scalar() : "";
    std::error_code ignored;
    if (item.IsMap()) {
      changed = true;
      out.push_back(json_of(item).dump());
    } else if ((text.ends_with(".yaml") || text.ends_with(".yml")) && std::filesystem::is_regular_file(text, ignored)) {
      changed = true;
      for (const std::string& entry : listed_sets(read_yaml(text), text)) out.push_back(entry);
    } else {
      out.push_back(item);
    }
  }
  return changed ? out : value;
}

}  // namespace fettle
