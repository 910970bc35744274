// Defines current_failure and report_error, which turn an error into an exit code and a message.
#pragma once

#include <string>

#include "base/error.h"

namespace fettle {

struct Failure {
  ExitCode code;
  std::string text;
};

// Returns the error that is being handled. Call it only in a catch block. Rethrows an object that is not a
// std::exception.
Failure current_failure();

// Prints current_failure() as the program does before it ends, and returns its exit code.
int report_error();

}  // namespace fettle
