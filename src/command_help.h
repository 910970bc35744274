// Defines command_help, the text that `fettle COMMAND --help` shows after the command's flags, and important_keys, the
// recipe keys in this text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Returns three examples, how to start `train` on several hosts, the recipe keys that matter most to the command, and
// where to find the other keys. No newline at the end. Throws InternalError when the command is unknown.
std::string command_help(std::string_view command);
// Returns the recipe keys that matter most to the command.
const std::vector<std::string_view>& important_keys(std::string_view command);

}  // namespace fettle
