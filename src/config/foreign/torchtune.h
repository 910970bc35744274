// Defines read_torchtune, which translates torchtune's recipes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns whether the recipe `root` names a component of torchtune as its model.
bool is_torchtune(const YAML::Node& root);

// Translates the recipe, whose name in messages is `file`. `root` has the keys of the file, `all` also the overrides.
// Replaces OmegaConf's references (${output_dir}) in the values of `root`. Throws UserError for keys that Fettle lacks
// and for references that cannot be resolved; the message begins with "FILE:LINE: ".
Dialect read_torchtune(const YAML::Node& root, const YAML::Node& all, const std::string& file);

}  // namespace fettle
