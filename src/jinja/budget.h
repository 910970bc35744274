// Defines Budget: what one rendering may spend in steps and memory, so that no template runs forever.
//
// A budget is in force on its thread from construction to destruction; without one nothing is counted. Values charge it
// for themselves.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace fettle::jinja {

// A failure inside a template; the interpreter adds the line and throws UserError.
class JinjaError : public std::runtime_error {
 public:
  template <typename... Args>
  explicit JinjaError(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

constexpr size_t kMostSteps = 10'000'000;
constexpr size_t kMostBytes = size_t{1} << 30;    // of all values made
constexpr size_t kLongestText = size_t{1} << 25;  // of one value

class Budget {
 public:
  Budget();
  ~Budget();
  Budget(const Budget&) = delete;

  // These throw JinjaError over the limits.
  static void step(size_t steps = 1);
  static void charge(size_t bytes);  // that a new value takes
  static void fit(size_t bytes);     // of a text that grows

 private:
  Budget* outer_;
  size_t steps_ = 0, bytes_ = 0;
};

}  // namespace fettle::jinja
