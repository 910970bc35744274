// Defines read_settings, which reads the DeepSpeed, FSDP or accelerate settings of another tool's recipe.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "config/value.h"

namespace fettle {

struct Settings {
  std::map<std::string, std::string> wishes;  // recipe key -> value, for keys that the recipe does not set itself
  std::string unread;                         // the settings file that could not be read; empty when there is none
};

// Reads the keys deepspeed, accelerate_config and fsdp_config (each a file, or its content), fsdp (words), fsdp_* and
// use_kt; returns nullopt for other keys. Also looks for a file in the recipe's folder. DeepSpeed's settings state what
// is offloaded; FSDP offloads both. A value of "auto" asks for nothing.
std::optional<Settings> read_settings(std::string_view key, const GivenValue& given,
                                      const std::filesystem::path& recipe);

}  // namespace fettle
