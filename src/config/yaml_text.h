// Defines parse_yaml and read_yaml, which read a YAML text of one document.
#pragma once

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <string>

namespace fettle {

// Returns the document as a node; a null node for an empty text. Throws YAML::ParserException when the text is not
// YAML, or when anything follows the first document. (yaml-cpp's Load would ignore what follows, and its LoadAll may
// never return.)
YAML::Node parse_yaml(const std::string& text);

// Reads a recipe, or another file that it names. Throws UserError when the file cannot be read or is not YAML.
YAML::Node read_yaml(const std::filesystem::path& file);

}  // namespace fettle
