#include "train/same_run.h"

#include <nlohmann/json.hpp>

#include "runtime/vendors/plugin.h"
#include "train/base_digest.h"

namespace fettle {

void require_same_run(const Processes& processes, const Run& run, const ModelRepository& repository,
                      const Devices& devices) {
  if (!processes.several()) return;
  nlohmann::json base = base_identity(run, repository);
  base.erase("paths");  // hosts may have the model in different folders
  nlohmann::json kinds = nlohmann::json::array();
  for (const DeviceInfo& device : devices.client().devices())
    if (devices.client().is_local(device.ordinal)) kinds.push_back(device.kind + " " + device.capability);
  processes.require_same("recipe and devices", {{"the recipe", nlohmann::json::parse(run.output.changed_keys)},
                                                {"the base model", base},
                                                {"the plugin", devices.client().plugin().content_hash()},
                                                {"the list of devices", kinds}});
}

void require_same_data(const Processes& processes, const DataIdentity& data, int64_t resumed_step) {
  if (!processes.several()) return;
  processes.require_same("data", {{"the number of rows", data.groups},
                                  {"the data (its tokens)", data.digest},
                                  {"the step of the checkpoint", resumed_step}});
}

}  // namespace fettle
