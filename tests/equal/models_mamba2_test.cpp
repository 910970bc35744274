// Tests that Mamba2's state space in chunks equals its definition token by token: with documents and padding in a row,
// with heads that share keys and queries, and with a state from earlier tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/mamba2.h"
#include "recurrences.h"

namespace fettle {
namespace {

constexpr int64_t kHeads = 4, kGroups = 2, kKeys = 3, kValues = 5;

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

Recurrence one_by_one(const Sequences& in, int64_t length, bool with_state) {
  Recurrence wanted{std::vector<double>(in.x.elements.size()), std::vector<double>(in.state.elements.size())};
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

TEST(StateSpace, ChunksEqualTheDefinition) {
  for (const int64_t length : {1, 8, 13})
    for (const bool with_state : {false, true}) {
      const Sequences in(length);
      GraphRun run;
      const std::vector<Tensor> x{run.input(in.x), run.input(in.k), run.input(in.q), run.input(in.decay)};
      const Tensor segments = run.input(in.segments), state = run.input(in.state);
      for (const int64_t chunk : {1, 4, 16}) {
        const StateSpace space = state_space(x[0], x[1], x[2], x[3], segments, chunk, with_state ? state : Tensor{});
        output_chunks(run, chunk, space.out_BTNH, space.state_BNKH, x);
      }
      const std::map<std::string, Value> got = run.run();
      const Recurrence wanted = one_by_one(in, length, with_state);
      expect_chunks(got, wanted, x.size());
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
  expect_near(got.at("out").elements, one_by_one(in, kLength, false).out, "out");
  for (const double slope : got.at("grad").elements) ASSERT_TRUE(std::isfinite(slope));
}

}  // namespace
}  // namespace fettle
