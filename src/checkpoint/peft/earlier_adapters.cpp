#include "checkpoint/peft/earlier_adapters.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/run_files.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeys[] = {"model_name_or_path", "adapter_name_or_path", "create_new_adapter"};

// Returns the object in the file; null if there is none. A file that cannot be read is no reason to stop: it only
// describes a run.
nlohmann::json object_in(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  try {
    if (auto json = read_json_file<nlohmann::json>(file); json.is_object()) return json;
  } catch (const UserError&) {
  }
  return nullptr;
}

// Returns the recipe of the run that wrote the adapter, or its keys about adapters; null if there is no record.
nlohmann::json recorded_recipe(const fs::path& adapter) {
  const fs::path folder = fs::weakly_canonical(adapter);
  if (nlohmann::json keys = object_in(folder / kEarlierAdapters); keys.is_object()) return keys;
  const bool is_checkpoint = folder.filename().string().starts_with("checkpoint-");
  for (const fs::path& place : {folder, is_checkpoint ? folder.parent_path() : folder}) {
    const nlohmann::json run = object_in(place / kRunFile);
    if (run.is_object() && run.contains("recipe") && run["recipe"].is_object()) return run["recipe"];
  }
  return nullptr;
}

// The adapters that a run started from.
struct Earlier {
  std::vector<std::string> merged;  // into the base, before the run trained
  std::string continued;            // trained further by the run; "" if it trained a new adapter
};

Earlier earlier_of(const nlohmann::json& recipe) {
  Earlier earlier;
  const nlohmann::json list = recipe.value("adapter_name_or_path", nlohmann::json::array());
  for (const nlohmann::json& name : list)
    if (name.is_string()) earlier.merged.push_back(name.get<std::string>());
  const bool fresh = recipe.value("create_new_adapter", nlohmann::json(false)) == true;
  if (fresh || earlier.merged.empty()) return earlier;
  earlier.continued = std::move(earlier.merged.back());
  earlier.merged.pop_back();
  return earlier;
}

bool same_model(const std::string& one, const std::string& other) {
  return one == other || fs::weakly_canonical(one) == fs::weakly_canonical(other);
}

}  // namespace

void write_earlier_adapters(const fs::path& folder, const nlohmann::json& recipe) {
  nlohmann::json keys = nlohmann::json::object();
  for (const char* key : kKeys)
    if (recipe.contains(key)) keys[key] = recipe[key];
  write_json_file(folder / kEarlierAdapters, keys);
}

std::string missing_earlier_adapters(const std::string& model, const std::vector<std::string>& adapters) {
  for (size_t i = 0; i < adapters.size(); ++i) {
    const nlohmann::json recipe = recorded_recipe(adapters[i]);
    // Another model may have the earlier adapters in its weights.
    if (!recipe.is_object() || !recipe.contains("model_name_or_path")) continue;
    const nlohmann::json& base = recipe["model_name_or_path"];
    if (!base.is_string() || !same_model(base.get<std::string>(), model)) continue;
    const std::vector<std::string> merged = earlier_of(recipe).merged;
    if (merged.size() > i)
      return fmt::format(
          "{0} was trained on {1} with {2} merged into it, so without {2} it does not work; set adapter_name_or_path: "
          "{2}, {0}",
          adapters[i], base.get<std::string>(), fmt::join(merged, ", "));
  }
  return "";
}

std::string continued_adapter(const std::string& adapter) {
  const nlohmann::json recipe = recorded_recipe(adapter);
  return recipe.is_object() ? earlier_of(recipe).continued : "";
}

}  // namespace fettle
