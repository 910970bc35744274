// Defines command_help, the text that `fettle COMMAND --help` shows after the command's flags, important_keys, the
// recipe keys in this text, and first_example, an example in this text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Returns three examples; for `train`, how to start it on several hosts; and, if the command reads a recipe, the keys
// that matter most to it and where to find the other keys. No newline at the end. Throws InternalError when the command
// is unknown.
std::string command_help(std::string_view command);
// Returns the first of the command's examples.
std::string_view first_example(std::string_view command);
// Returns the recipe keys that matter most to the command; none if the command reads no recipe.
const std::vector<std::string_view>& important_keys(std::string_view command);

}  // namespace fettle
