// Defines place_of and text_of, for readers of other tools' recipes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// Returns where the value is, for messages: "FILE:LINE", or `file` alone for a value that is not from a file.
std::string place_of(const std::string& file, const YAML::Node& node);

// Returns the text of a scalar; "" for all other values, also undefined ones.
std::string text_of(const YAML::Node& node);

}  // namespace fettle
