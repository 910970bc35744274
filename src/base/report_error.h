// Defines report_error, which prints an error as the program does before it ends.
#pragma once

namespace fettle {

// Prints the error that is being handled, and returns its exit code. Call it only in a catch block. Throws again what
// is not a std::exception.
int report_error();

}  // namespace fettle
