// Defines read_other_defaults, for recipes of ms-swift and Unsloth. Their keys mean the same as in Fettle, but have
// other defaults.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns the defaults of ms-swift or Unsloth if the keys of `root` are typical of this tool; otherwise nullopt.
// `all` has the keys of `root` and the overrides; some defaults depend on them. Warns when Fettle does not follow a
// default of the tool.
std::optional<Dialect> read_other_defaults(const YAML::Node& root, const YAML::Node& all);

}  // namespace fettle
