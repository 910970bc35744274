// Defines functions that compare the losses of two runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace fettle {

// Returns the largest relative difference between the losses of two runs at the same step.
inline double largest_difference(const std::vector<double>& losses, const std::vector<double>& others) {
  double largest = 0;
  for (size_t i = 0; i < losses.size(); ++i) largest = std::max(largest, std::abs(losses[i] / others.at(i) - 1));
  return largest;
}

// Expects that losses computed in bfloat16 differ from float32 losses by more than 2e-4. Float32 losses of two programs
// differ by only about 1e-5.
inline void expect_rounded(const std::vector<double>& losses, const std::vector<double>& in_f32) {
  EXPECT_GT(largest_difference(losses, in_f32), 2e-4) << "nothing was rounded to bfloat16";
}

}  // namespace fettle
