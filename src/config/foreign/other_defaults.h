// Defines read_other_defaults, for recipes of tools whose keys mean the same as in Fettle but have other defaults.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns the defaults of ms-swift, TRL or Unsloth if the recipe has keys that are typical of this tool; otherwise
// nullopt. Warns when Fettle does not follow a default of the tool.
std::optional<Dialect> read_other_defaults(const YAML::Node& root);

}  // namespace fettle
