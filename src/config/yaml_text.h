// Defines parse_yaml: the one document of a YAML text.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace fettle {

// A null node of an empty text. Throws YAML::ParserException, also where a second document begins or text is left that
// belongs to none: yaml-cpp's Load leaves it unread, and its LoadAll may never come back from it.
YAML::Node parse_yaml(const std::string& text);

}  // namespace fettle
