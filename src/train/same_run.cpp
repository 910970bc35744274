#include "train/same_run.h"

#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "runtime/vendors/plugin.h"
#include "train/checkpoints/base_digest.h"

namespace fettle {
namespace {

// The keys that name places. Hosts may have the same files in different places. What is read from them is compared
// later.
constexpr const char* kPlaces[] = {"model_name_or_path",
                                   "adapter_name_or_path",
                                   "ref_model",
                                   "dataset",
                                   "eval_dataset",
                                   "dataset_dir",
                                   "offload_dir",
                                   "logging_dir",
                                   "plugin",
                                   "data_cache",
                                   "compile_cache",
                                   "new_special_tokens_config",
                                   "cache_dir"};

// Returns the keys with the number of places instead of the places, so that a key that only one host sets is found.
nlohmann::json without_places(nlohmann::json keys) {
  for (const char* key : kPlaces)
    if (keys.contains(key)) keys[key] = keys[key].is_array() ? nlohmann::json(keys[key].size()) : nlohmann::json();
  return keys;
}

}  // namespace

void require_same_start(const Processes& processes, const Request& request) {
  if (!processes.several()) return;
  nlohmann::json values{{"the version of Fettle", FETTLE_VERSION},
                        {"the recipe", without_places(request.changed_keys())},
                        {"the plugin", Plugin::load(request.devices().plugin)->content_hash()}};
  for (const char* variable : {"XLA_FLAGS", "FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC"})
    values[variable] = environment(variable);
  processes.require_same("recipe and plugin", values);
}

void require_same_base(const Processes& processes, const Run& run, const ModelRepository& repository) {
  if (!processes.several()) return;
  nlohmann::json base = base_identity(run, repository);
  base.erase("paths");  // hosts may have the model in different folders
  processes.require_same("base model", {{"the base model", base},
                                        {"the model at the start of training", start_digest(run, repository)},
                                        {"the adapter", adapter_digest(run)}});
}

void require_same_data(const Processes& processes, const DataIdentity& data, const Examples& held_out,
                       int64_t resumed_step) {
  if (!processes.several()) return;
  processes.require_same("data", {{"the number of rows", data.groups},
                                  {"the data (its tokens)", data.digest},
                                  {"the number of held-out rows", held_out.size()},
                                  {"the held-out data (its tokens)", held_out.digest()},
                                  {"the step of the checkpoint", resumed_step}});
}

}  // namespace fettle
