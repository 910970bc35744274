#include "config/keys.h"

#include <algorithm>

namespace fettle {
namespace {

std::vector<Key> all_keys() {
  std::vector<Key> all;
  for (const auto& part : {model_keys(), method_keys(), preference_keys(), data_keys(), training_keys(), output_keys(),
                           export_keys(), generation_keys(), hardware_keys()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

const std::vector<Key>& recipe_keys() {
  static const std::vector<Key> keys = all_keys();
  return keys;
}

const Key* find_key(std::string_view name_or_alias) {
  for (const Key& key : recipe_keys())
    if (key.name == name_or_alias || std::ranges::find(key.aliases, name_or_alias) != key.aliases.end()) return &key;
  return nullptr;
}

std::string_view group_title(Group group) {
  switch (group) {
    case Group::kModel: return "Model";
    case Group::kMethod: return "Method";
    case Group::kData: return "Data";
    case Group::kTraining: return "Training";
    case Group::kOutput: return "Output";
    case Group::kExport: return "Export";
    case Group::kGeneration: return "Generation";
    case Group::kHardware: return "Hardware";
  }
  return "";
}

}  // namespace fettle
