// Defines Budget: the limits of steps and memory for one rendering, so that every template ends.
//
// A budget is active on its thread from construction to destruction. Without an active budget, nothing is counted. New
// values charge their size to the budget.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace fettle::jinja {

// An error inside a template. Template::render adds the line number and throws UserError.
class JinjaError : public std::runtime_error {
 public:
  template <typename... Args>
  explicit JinjaError(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

constexpr size_t kLongestText = size_t{1} << 25;  // bytes of one text

// What a rendering may use. Tests set less, which takes less time to reach.
struct Limits {
  size_t steps = 10'000'000;
  size_t bytes = size_t{1} << 30;  // bytes of all values that the rendering makes
};

class Budget {
 public:
  explicit Budget(Limits limits = {});
  ~Budget();
  Budget(const Budget&) = delete;

  // The next three functions throw JinjaError when a limit is exceeded.
  static void step(size_t steps = 1);
  static void charge(size_t bytes);  // counts the bytes of a new value
  static void fit(size_t bytes);     // checks the length of a growing text

 private:
  Budget* outer_;
  Limits limits_;
  size_t steps_ = 0, bytes_ = 0;
};

}  // namespace fettle::jinja
