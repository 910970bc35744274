// Tests that the gated delta rule in chunks equals its definition token by token, with documents and padding in a row
// and with a state from earlier tokens. Tests the same for the short convolution.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/delta_net.h"
#include "models/blocks/short_convolution.h"

namespace fettle {
namespace {

constexpr int64_t kRows = 2, kHeads = 2, kKeys = 3, kValues = 4;

Value numbers(Dims dims, uint32_t seed, double low = -1, double high = 1) {
  return random_value({DType::kF32, std::move(dims)}, seed, low, high);
}

// Returns two rows of segment ids: one row has three documents and padding, the other a single document.
Value segments_of(int64_t t) {
  Value out{{DType::kI32, {kRows, t}}, {}};
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 2 ? 3 : 0);
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(1);
  return out;
}

struct Inputs {
  Value q, k, v, decay, beta, segments, state;
  explicit Inputs(int64_t t)
      : q(numbers({kRows, t, kHeads, kKeys}, 1)),
        k(numbers({kRows, t, kHeads, kKeys}, 2)),
        v(numbers({kRows, t, kHeads, kValues}, 3)),
        decay(numbers({kRows, t, kHeads}, 4, -1, 0)),
        beta(numbers({kRows, t, kHeads}, 5, 0, 1)),
        segments(segments_of(t)),
        state(numbers({kRows, kHeads, kKeys, kValues}, 6)) {}
};

struct Wanted {
  std::vector<double> out, state;
};

Wanted token_by_token(const Inputs& in, int64_t length, bool with_state) {
  Wanted wanted{std::vector<double>(in.v.elements.size()), std::vector<double>(in.state.elements.size())};
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

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-5) << what << ' ' << i;
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
        run.output("out" + std::to_string(chunk), rule.out_BTNH);
        run.output("state" + std::to_string(chunk), rule.state_BNKH);
        const std::vector<Tensor> grads = grad(reduce_sum(rule.out_BTNH * rule.out_BTNH, {0, 1, 2, 3}), x);
        for (size_t i = 0; i < x.size(); ++i)
          run.output("grad" + std::to_string(i) + "of" + std::to_string(chunk), grads[i]);
      }
      const std::map<std::string, Value> got = run.run();
      const Wanted wanted = token_by_token(in, length, with_state);
      for (const char* chunk : {"1", "4", "16"}) {
        expect_near(got.at(std::string("out") + chunk).elements, wanted.out, std::string("out, chunks of ") + chunk);
        expect_near(got.at(std::string("state") + chunk).elements, wanted.state,
                    std::string("state, chunks of ") + chunk);
        for (size_t i = 0; i < x.size(); ++i) {
          const std::string name = "grad" + std::to_string(i) + "of";
          expect_near(got.at(name + chunk).elements, got.at(name + "1").elements, name + chunk);
        }
      }
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
  const Value before = numbers({kRows, kWidth - 1, kChannels}, 3), segments = segments_of(kLength);
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
