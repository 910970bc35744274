// Defines command_help: the text of `fettle COMMAND --help` after the command's own flags. Also the keys in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Returns three examples, the recipe keys that matter most to the command, and where to find the other keys. No newline
// at the end. Throws InternalError when the command is unknown.
std::string command_help(std::string_view command);
// Returns the recipe keys that matter most to the command.
const std::vector<std::string_view>& important_keys(std::string_view command);

}  // namespace fettle
