// Defines place_of, text_of and number_of, for readers of other tools' recipes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// Returns where the value is, for messages: "FILE:LINE", or `file` alone for a value that is not from a file.
std::string place_of(const std::string& file, const YAML::Node& node);

// Returns the text of a scalar; "" for all other values, also undefined ones.
std::string text_of(const YAML::Node& node);

// Returns the number that a scalar's text is; `otherwise` for all other values, also infinite ones.
double number_of(const YAML::Node& node, double otherwise);

}  // namespace fettle
