// Defines parse_yaml: reads a YAML text of one document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// An empty text gives a null node. Throws YAML::ParserException, also when a second document or other text follows the
// first document. (yaml-cpp's Load would ignore that text, and its LoadAll may never return.)
YAML::Node parse_yaml(const std::string& text);

}  // namespace fettle
