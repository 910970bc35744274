// Defines command_help, which returns the text that `fettle COMMAND --help` prints after the command's own flags.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Returns three examples, the recipe keys that matter most to the command, and where to find the other keys. No newline
// at the end. Throws InternalError when the command is unknown.
std::string command_help(std::string_view command);

}  // namespace fettle
