// Defines parse_yaml: reads a YAML text of one document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// An empty text gives a null node. Throws YAML::ParserException, also when a second document or other text follows the
// first document: yaml-cpp's Load ignores it, and its LoadAll may not return.
YAML::Node parse_yaml(const std::string& text);

}  // namespace fettle
