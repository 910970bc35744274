// Tests that the gated delta rule in chunks equals its definition token by token, with documents and padding in a row
// and with a state from earlier tokens. Tests the same for the short convolution.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/delta_net.h"
#include "models/blocks/short_convolution.h"
#include "recurrences.h"

namespace fettle {
namespace {

constexpr int64_t kHeads = 2, kKeys = 3, kValues = 4;

struct Inputs {
  Value q, k, v, decay, beta, segments, state;
  explicit Inputs(int64_t t)
      : q(numbers({kRows, t, kHeads, kKeys}, 1)),
        k(numbers({kRows, t, kHeads, kKeys}, 2)),
        v(numbers({kRows, t, kHeads, kValues}, 3)),
        decay(numbers({kRows, t, kHeads}, 4, -1, 0)),
        beta(numbers({kRows, t, kHeads}, 5, 0, 1)),
        segments(documents_of_length(t)),
        state(numbers({kRows, kHeads, kKeys, kValues}, 6)) {}
};

Recurrence token_by_token(const Inputs& in, int64_t length, bool with_state) {
  Recurrence wanted{std::vector<double>(in.v.elements.size()), std::vector<double>(in.state.elements.size())};
  for (int64_t b = 0; b < kRows; ++b)
    for (int64_t n = 0; n < kHeads; ++n) {
      double s[kKeys][kValues] = {};
      auto place = [&](int64_t i, int64_t j) { return ((b * kHeads + n) * kKeys + i) * kValues + j; };
      for (int64_t i = 0; i < kKeys; ++i)
        for (int64_t j = 0; j < kValues; ++j) s[i][j] = with_state ? in.state.elements[place(i, j)] : 0;
      for (int64_t t = 0; t < length; ++t) {
        const int64_t row = b * length + t, at = row * kHeads + n;
        const bool begins = t > 0 && in.segments.elements[row] != in.segments.elements[row - 1];
        for (int64_t j = 0; j < kValues; ++j) {
          double known = 0;
          for (int64_t i = 0; i < kKeys; ++i) {
            s[i][j] = begins ? 0 : s[i][j] * std::exp(in.decay.elements[at]);
            known += s[i][j] * in.k.elements[at * kKeys + i];
          }
          const double change = in.beta.elements[at] * (in.v.elements[at * kValues + j] - known);
          double& out = wanted.out[at * kValues + j];
          for (int64_t i = 0; i < kKeys; ++i) {
            s[i][j] += change * in.k.elements[at * kKeys + i];
            out += s[i][j] * in.q.elements[at * kKeys + i];
          }
        }
      }
      for (int64_t i = 0; i < kKeys; ++i)
        for (int64_t j = 0; j < kValues; ++j) wanted.state[place(i, j)] = s[i][j];
    }
  return wanted;
}

TEST(DeltaRule, ChunksEqualTheDefinition) {
  for (const int64_t length : {1, 8, 13})
    for (const bool with_state : {false, true}) {
      const Inputs in(length);
      GraphRun run;
      const std::vector<Tensor> x{run.input(in.q), run.input(in.k), run.input(in.v), run.input(in.decay),
                                  run.input(in.beta)};
      const Tensor segments = run.input(in.segments), state = run.input(in.state);
      for (const int64_t chunk : {1, 4, 16}) {
        const DeltaRule rule =
            gated_delta_rule(x[0], x[1], x[2], x[3], x[4], segments, chunk, with_state ? state : Tensor{});
        output_chunks(run, chunk, rule.out_BTNH, rule.state_BNKH, x);
      }
      const std::map<std::string, Value> got = run.run();
      const Recurrence wanted = token_by_token(in, length, with_state);
      expect_chunks(got, wanted, x.size());
    }
}

// All keys are equal and `beta` is 1. With these inputs, powers of the triangular matrix would exceed the range of f32.
TEST(DeltaRule, RepeatedKeysStayExact) {
  constexpr int64_t kLength = 64;
  Inputs in(kLength);
  for (double& x : in.k.elements) x = 1 / std::sqrt(3.0);
  for (double& x : in.decay.elements) x = 0;
  for (double& x : in.beta.elements) x = 1;
  GraphRun run;
  const DeltaRule rule = gated_delta_rule(run.input(in.q), run.input(in.k), run.input(in.v), run.input(in.decay),
                                          run.input(in.beta), run.input(in.segments), kLength);
  run.output("out", rule.out_BTNH);
  expect_near(run.run().at("out").elements, token_by_token(in, kLength, false).out, "out");
}

TEST(Convolution, ReadsOnlyItsDocumentAndWhatCameBefore) {
  constexpr int64_t kLength = 13, kChannels = 3, kWidth = 4;
  const Value x = numbers({kRows, kLength, kChannels}, 1), weight = numbers({kChannels, kWidth}, 2);
  const Value before = numbers({kRows, kWidth - 1, kChannels}, 3), segments = documents_of_length(kLength);
  GraphRun run;
  const Tensor inputs[] = {run.input(x), run.input(weight), run.input(segments), run.input(before)};
  run.output("plain", causal_convolution(inputs[0], inputs[1], inputs[2]));
  run.output("continued", causal_convolution(inputs[0], inputs[1], inputs[2], inputs[3]));
  const std::map<std::string, Value> got = run.run();
  for (const bool continued : {false, true}) {
    std::vector<double> wanted;
    for (int64_t b = 0; b < kRows; ++b)
      for (int64_t t = 0; t < kLength; ++t)
        for (int64_t c = 0; c < kChannels; ++c) {
          double sum = 0;
          for (int64_t i = 0; i < kWidth; ++i) {
            const int64_t from = t - i;
            const double document = segments.elements[b * kLength + std::max<int64_t>(from, 0)];
            if (document != segments.elements[b * kLength + t]) continue;
            double value = 0;
            if (from >= 0)
              value = x.elements[(b * kLength + from) * kChannels + c];
            else if (continued)
              value = before.elements[(b * (kWidth - 1) + kWidth - 1 + from) * kChannels + c];
            sum += value * weight.elements[c * kWidth + kWidth - 1 - i];
          }
          wanted.push_back(sum);
        }
    expect_near(got.at(continued ? "continued" : "plain").elements, wanted, continued ? "continued" : "plain");
  }
}

}  // namespace
}  // namespace fettle
