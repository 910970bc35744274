// Defines command_help: what `fettle COMMAND --help` says below the command's own flags.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Three examples, the recipe keys that matter most to the command, and where the other keys are. No newline at the
// end. Throws InternalError when there is no such command.
std::string command_help(std::string_view command);

}  // namespace fettle
