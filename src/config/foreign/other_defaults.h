// Defines read_other_defaults, for recipes of ms-swift and Unsloth. Their keys mean the same as in Fettle, but have
// other defaults.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns the defaults of ms-swift or Unsloth if the keys of the recipe are typical of this tool; otherwise nullopt.
// The parameters and errors are those of read_dialect. Warns when Fettle does not follow a default of the tool.
std::optional<Dialect> read_other_defaults(const YAML::Node& root, const YAML::Node& all, const std::string& file);

}  // namespace fettle
