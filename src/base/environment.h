// Defines functions that read an environment variable, this machine's name and its boot id.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/text.h"

namespace fettle {

// Returns the variable's value; "" when it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns whether the variable is 1, true, yes or on, in upper or lower case.
inline bool environment_is_on(const char* name) {
  const std::string value = lower_case(environment(name));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

// Returns this machine's name; "" when it has none.
inline std::string host_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

// Returns the random id that Linux makes each time the machine starts. The id differs between machines of the same
// name, and changes when a machine restarts. All containers of a machine have the same id. Returns "" when it cannot be
// read.
inline std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace fettle
