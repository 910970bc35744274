// Defines process_name: the unique name of this process in folders that several machines share. The names of unfinished
// files contain this name. Defines random_hex, which makes other unique names, and passwords.
#pragma once

#include <string>

namespace fettle {

// Returns 16 random hexadecimal digits: this process's name, unique among all machines. A forked process has another
// name.
const std::string& process_name();
// Returns 8 * `words` random hexadecimal digits, which the system's random device makes. They can serve as a password.
std::string random_hex(int words);
// Returns whether `text` has the form of a process name, as this or an earlier version of Fettle makes it.
bool is_process_name(const std::string& text);

}  // namespace fettle
