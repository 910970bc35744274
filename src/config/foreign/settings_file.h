// Defines read_settings, which reads the DeepSpeed, FSDP or accelerate settings of another tool's recipe.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace fettle {

struct Settings {
  std::map<std::string, std::string> wishes;  // values by Fettle's key; used if the recipe does not set the key
  std::vector<std::string> notes;             // what the settings ask for but Fettle does otherwise
  std::string scheduler;                      // DeepSpeed's name of the schedule; empty: none
  std::string unread;                         // the settings file that could not be read; empty: none
};

// Reads the keys deepspeed, dist_config.config_file, accelerate_config and fsdp_config (each the name of a file, or its
// content), fsdp (words), fsdp_* and use_kt. Returns nullopt for other keys. Looks for a file in the current folder,
// then in the folder of `recipe`. DeepSpeed's settings say separately whether the optimizer state and the weights are
// offloaded; FSDP's settings offload both or none; use_kt offloads the weights. A file may also set the dtype, the
// batch, gradient clipping, the mesh, the plugin, the learning rate, the weight decay, the schedule and its warmup.
// "auto" sets nothing.
std::optional<Settings> read_settings(std::string_view key, const GivenValue& given,
                                      const std::filesystem::path& recipe);

}  // namespace fettle
