// Defines run_shell and in_script, with which tests run the scripts of this checkout.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "paths.h"

namespace fettle {

struct Printed {
  int code;
  std::string text;
};

// Runs a shell command in the checkout. Returns its exit code and its output, which includes standard error.
inline Printed run_shell(const std::string& command) {
  FILE* pipe = popen(("cd " + source_folder().string() + " && { " + command + "; } 2>&1").c_str(), "r");
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
  return {WEXITSTATUS(pclose(pipe)), text};
}

// Returns a command that reads the script up to the line `end`, which leaves its functions, and then runs `command`.
// `command` must not have single quotes.
inline std::string in_script(const std::string& script, const std::string& end, const std::string& command) {
  return "bash -c \"$(sed '/^" + end + "/,$d' " + script + ")\"'\n" + command + "' " + script;
}

}  // namespace fettle
