// Defines read_torchtune, which translates the section `model` of a torchtune configuration.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns whether the recipe `root` names a component of torchtune as its model.
bool is_torchtune(const YAML::Node& root);

// Translates the recipe, whose name in messages is `file`. Throws UserError for keys of `model` that Fettle lacks; the
// message begins with "FILE:LINE: ".
Dialect read_torchtune(const YAML::Node& root, const std::string& file);

}  // namespace fettle
