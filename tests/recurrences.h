// Defines what the tests of layers with a state share: random inputs, documents in rows, and the comparison of chunks
// of 1, 4 and 16 positions with the definition.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"

namespace fettle {

inline constexpr int64_t kRows = 2;

inline Value numbers(Dims dims, uint32_t seed, double low = -1, double high = 1) {
  return random_value({DType::kF32, std::move(dims)}, seed, low, high);
}

// Returns two rows of segment ids: one row has three documents and padding, the other a single document.
inline Value documents_of_length(int64_t t) {
  Value out{{DType::kI32, {kRows, t}}, {}};
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 2 ? 3 : 0);
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(1);
  return out;
}

struct Recurrence {
  std::vector<double> out, state;
};

// Adds outputs to the program: `out`, `state`, and the gradients with respect to `x` of the sum of squares of `out`.
inline void output_chunks(GraphRun& run, int64_t chunk, const Tensor& out, const Tensor& state,
                          const std::vector<Tensor>& x) {
  const std::string suffix = std::to_string(chunk);
  run.output("out" + suffix, out);
  run.output("state" + suffix, state);
  const std::vector<Tensor> grads = grad(reduce_sum(out * out, {0, 1, 2, 3}), x);
  for (size_t i = 0; i < x.size(); ++i) run.output("grad" + std::to_string(i) + "of" + suffix, grads[i]);
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-5) << what << ' ' << i;
}

// Expects that outputs and states equal the definition's, and that the gradients of all chunks equal those of chunks of
// one position.
inline void expect_chunks(const std::map<std::string, Value>& got, const Recurrence& wanted, size_t inputs) {
  for (const std::string chunk : {"1", "4", "16"}) {
    expect_near(got.at("out" + chunk).elements, wanted.out, "out, chunks of " + chunk);
    expect_near(got.at("state" + chunk).elements, wanted.state, "state, chunks of " + chunk);
    for (size_t i = 0; i < inputs; ++i) {
      const std::string name = "grad" + std::to_string(i) + "of";
      expect_near(got.at(name + chunk).elements, got.at(name + "1").elements, name + chunk);
    }
  }
}

}  // namespace fettle
