// Defines parse_yaml: reads a YAML text of one document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// Returns the document as a node; a null node for an empty text. Throws YAML::ParserException when the text is not
// YAML, or when a second document or other text follows the first document. (yaml-cpp's Load would ignore that text,
// and its LoadAll may never return.)
YAML::Node parse_yaml(const std::string& text);

}  // namespace fettle
