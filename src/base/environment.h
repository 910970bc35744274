// Defines environment, which reads an environment variable, and host_name.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace fettle {

// Returns the variable's value; "" when it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns this machine's name; "" when it has none.
inline std::string host_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace fettle
