// Tests that Mamba2's state space in chunks equals its definition token by token: with documents and padding in a row,
// with heads that share keys and queries, and with a state from earlier tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/mamba2.h"

namespace fettle {
namespace {

constexpr int64_t kRows = 2, kHeads = 4, kGroups = 2, kKeys = 3, kValues = 5;

Value numbers(Dims dims, uint32_t seed, double low = -1, double high = 1) {
  return random_value({DType::kF32, std::move(dims)}, seed, low, high);
}

// Returns two rows of segment ids: one row has three documents and padding, the other a single document.
Value documents_of_length(int64_t t) {
  Value out{{DType::kI32, {kRows, t}}, {}};
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 2 ? 3 : 0);
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(1);
  return out;
}

struct Sequences {
  Value x, k, q, decay, segments, state;
  explicit Sequences(int64_t t)
      : x(numbers({kRows, t, kHeads, kValues}, 1)),
        k(numbers({kRows, t, kGroups, kKeys}, 2)),
        q(numbers({kRows, t, kGroups, kKeys}, 3)),
        decay(numbers({kRows, t, kHeads}, 4, -1, 0)),
        segments(documents_of_length(t)),
        state(numbers({kRows, kHeads, kKeys, kValues}, 5)) {}
};

struct Expected {
  std::vector<double> out, state;
};

Expected one_by_one(const Sequences& in, int64_t length, bool with_state) {
  Expected wanted{std::vector<double>(in.x.elements.size()), std::vector<double>(in.state.elements.size())};
  for (int64_t b = 0; b < kRows; ++b)
    for (int64_t n = 0; n < kHeads; ++n) {
      double s[kKeys][kValues] = {};
      auto place = [&](int64_t i, int64_t j) { return ((b * kHeads + n) * kKeys + i) * kValues + j; };
      for (int64_t i = 0; i < kKeys; ++i)
        for (int64_t j = 0; j < kValues; ++j) s[i][j] = with_state ? in.state.elements[place(i, j)] : 0;
      for (int64_t t = 0; t < length; ++t) {
        const int64_t row = b * length + t, at = row * kHeads + n;
        const int64_t shared = (row * kGroups + n / (kHeads / kGroups)) * kKeys;
        const bool begins = t > 0 && in.segments.elements[row] != in.segments.elements[row - 1];
        for (int64_t j = 0; j < kValues; ++j)
          for (int64_t i = 0; i < kKeys; ++i) {
            s[i][j] = begins ? 0 : s[i][j] * std::exp(in.decay.elements[at]);
            s[i][j] += in.k.elements[shared + i] * in.x.elements[at * kValues + j];
            wanted.out[at * kValues + j] += s[i][j] * in.q.elements[shared + i];
          }
      }
      for (int64_t i = 0; i < kKeys; ++i)
        for (int64_t j = 0; j < kValues; ++j) wanted.state[place(i, j)] = s[i][j];
    }
  return wanted;
}

void expect_all_near(const std::vector<double>& got, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-5) << what << ' ' << i;
}

TEST(StateSpace, ChunksEqualTheDefinition) {
  for (const int64_t length : {1, 8, 13})
    for (const bool with_state : {false, true}) {
      const Sequences in(length);
      GraphRun run;
      const std::vector<Tensor> x{run.input(in.x), run.input(in.k), run.input(in.q), run.input(in.decay)};
      const Tensor segments = run.input(in.segments), state = run.input(in.state);
      for (const int64_t chunk : {1, 4, 16}) {
        const StateSpace space = state_space(x[0], x[1], x[2], x[3], segments, chunk, with_state ? state : Tensor{});
        run.output("out" + std::to_string(chunk), space.out_BTNH);
        run.output("state" + std::to_string(chunk), space.state_BNKH);
        const std::vector<Tensor> grads = grad(reduce_sum(space.out_BTNH * space.out_BTNH, {0, 1, 2, 3}), x);
        for (size_t i = 0; i < x.size(); ++i)
          run.output("grad" + std::to_string(i) + "of" + std::to_string(chunk), grads[i]);
      }
      const std::map<std::string, Value> got = run.run();
      const Expected wanted = one_by_one(in, length, with_state);
      for (const char* chunk : {"1", "4", "16"}) {
        expect_all_near(got.at(std::string("out") + chunk).elements, wanted.out,
                        std::string("out, chunks of ") + chunk);
        expect_all_near(got.at(std::string("state") + chunk).elements, wanted.state,
                        std::string("state, chunks of ") + chunk);
        for (size_t i = 0; i < x.size(); ++i) {
          const std::string name = "grad" + std::to_string(i) + "of";
          expect_all_near(got.at(name + chunk).elements, got.at(name + "1").elements, name + chunk);
        }
      }
    }
}

// A head that forgets within one position has decays whose sum over a chunk underflows exp. The result stays finite.
TEST(StateSpace, StrongDecayStaysExact) {
  constexpr int64_t kLength = 32;
  Sequences in(kLength);
  for (double& decay : in.decay.elements) decay *= 20;
  GraphRun run;
  const std::vector<Tensor> x{run.input(in.x), run.input(in.k), run.input(in.q), run.input(in.decay)};
  const StateSpace space = state_space(x[0], x[1], x[2], x[3], run.input(in.segments), kLength);
  run.output("out", space.out_BTNH);
  run.output("grad", grad(reduce_sum(space.out_BTNH * space.out_BTNH, {0, 1, 2, 3}), x)[3]);
  const std::map<std::string, Value> got = run.run();
  expect_all_near(got.at("out").elements, one_by_one(in, kLength, false).out, "out");
  for (const double slope : got.at("grad").elements) ASSERT_TRUE(std::isfinite(slope));
}

}  // namespace
}  // namespace fettle
