// Defines environment, which reads an environment variable, host_name and boot_id.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
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

// Returns the id that Linux makes when it starts, so machines of equal name differ in it, and one machine before and
// after a restart. All containers of a machine have the same id. Returns "" when it cannot be read.
inline std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace fettle
