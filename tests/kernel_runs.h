// Defines Ran, the outputs of a program with the kernels that it used, and comparisons of two such runs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "graph/composite.h"
#include "graph_run.h"

namespace fettle {

struct Ran {
  std::map<std::string, Value> values;
  std::vector<KernelUse> kernels;
};

// Returns for each output: the norm of its difference from the expected output, divided by the norm of the expected
// output.
inline std::map<std::string, double> distances(const Ran& got, const Ran& wanted) {
  std::map<std::string, double> out;
  for (const auto& [name, value] : wanted.values) {
    double error = 0, length = 0;
    for (size_t e = 0; e < value.elements.size(); ++e) {
      const double difference = got.values.at(name).elements[e] - value.elements[e];
      error += difference * difference;
      length += value.elements[e] * value.elements[e];
    }
    EXPECT_GT(length, 1e-6) << name << " tells nothing";
    out[name] = std::sqrt(error / length);
  }
  return out;
}

inline void expect_near(const Ran& got, const Ran& wanted, double bound) {
  for (const auto& [name, distance] : distances(got, wanted)) EXPECT_LT(distance, bound) << name;
}

inline void expect_same_bits(const Ran& got, const Ran& wanted) {
  for (const auto& [name, value] : wanted.values) EXPECT_EQ(got.values.at(name).elements, value.elements) << name;
}

}  // namespace fettle
