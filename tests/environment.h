// Defines Environment, which gives an environment variable another value during a test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace fettle {

// Sets the variable, or unsets it when there is no value. The destructor restores the old value.
class Environment {
 public:
  Environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    put(value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { put(before_); }

 private:
  void put(const std::optional<std::string>& value) {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace fettle
