// Defines read_other_defaults: recipes of tools whose keys mean the same here, but whose defaults differ.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>

#include "config/foreign/dialect.h"

namespace fettle {

// Recognises ms-swift, TRL and Unsloth by keys that only they have. Returns nullopt for all other recipes.
std::optional<Dialect> read_other_defaults(const YAML::Node& root);

}  // namespace fettle
