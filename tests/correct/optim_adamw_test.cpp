// Compares AdamW, the gradient norm and clipping with the same arithmetic in double.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/ops.h"
#include "graph_run.h"
#include "optim/adamw.h"
#include "optim/clip.h"

namespace fettle {
namespace {

constexpr int64_t kN = 6;
constexpr int kSteps = 4;

// Computes PyTorch's AdamW in double for one weight with kN elements.
struct AdamWOnHost {
  std::vector<double> w, m = std::vector<double>(kN, 0), v = std::vector<double>(kN, 0);

  void step(int t, const std::vector<double>& grad, double rate, double decay, const OptimOptions& o) {
    for (int64_t i = 0; i < kN; ++i) {
      w[i] *= 1 - rate * decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * grad[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * grad[i] * grad[i];
      const double corrected_m = m[i] / (1 - std::pow(o.beta1, t)), corrected_v = v[i] / (1 - std::pow(o.beta2, t));
      w[i] -= rate * corrected_m / (std::sqrt(corrected_v) + o.epsilon);
    }
  }
};

// Returns gradients of very different sizes: one is below epsilon, and one is zero.
std::vector<double> gradient(int t) {
  return {1.0 / t, -2, 1e-9 * t, 0, 300, -0.01 * t * t};
}

std::map<std::string, Tensor> scalar_inputs(GraphRun& run, const OptimOptions& options, int64_t step, double rate) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, value] : adamw_rule().scalars(options, step, rate)) out[name] = run.input(f32({}, {value}));
  return out;
}

TEST(AdamW, EqualsTheDefinitionStepByStep) {
  const OptimOptions options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-8};
  const std::vector<double> start{0.5, -1, 2, 3, -4, 0.125};
  for (const auto& [decay, factor] : {std::pair{0.0, 1.0}, {0.1, 1.0}, {0.1, 16.0}}) {
    GraphRun run;
    OptimWeight weight;
    weight.shape = {DType::kF32, Dims{kN}};
    weight.axes = {""};
    weight.weight_decay = decay;
    weight.rate = factor;
    const std::vector<OptimState> arrays = adamw_rule().state(weight, options);
    Updated state{run.input(f32({kN}, start)), {}};
    for (const OptimState& array : arrays) state.state.push_back(run.input({array.shape, std::vector<double>(kN, 0)}));
    AdamWOnHost host{start};
    std::vector<AdamWOnHost> wanted;
    for (int t = 1; t <= kSteps; ++t) {
      const double rate = 0.01 * t;
      state = adamw_rule().update(
          weight, options,
          {state.weight, run.input(f32({kN}, gradient(t))), state.state, scalar_inputs(run, options, t, rate)});
      host.step(t, gradient(t), rate * factor, decay, options);
      wanted.push_back(host);
      const std::string prefix = std::to_string(t);
      run.output(prefix + "w", state.weight);
      run.output(prefix + "m", state.state[0]);
      run.output(prefix + "v", state.state[1]);
    }
    const std::map<std::string, Value> got = run.run();
    for (int t = 1; t <= kSteps; ++t) {
      const std::string prefix = std::to_string(t);
      for (int64_t i = 0; i < kN; ++i) {
        const AdamWOnHost& at = wanted[t - 1];
        EXPECT_NEAR(got.at(prefix + "w").elements[i], at.w[i], 1e-6 * std::max(1.0, std::abs(at.w[i])))
            << t << ' ' << i;
        EXPECT_NEAR(got.at(prefix + "m").elements[i], at.m[i], 2e-6 * std::abs(at.m[i])) << t << ' ' << i;
        EXPECT_NEAR(got.at(prefix + "v").elements[i], at.v[i], 2e-6 * std::abs(at.v[i])) << t << ' ' << i;
      }
    }
  }
}

TEST(Clip, ReducesTheGlobalNormAndNeverIncreasesIt) {
  GraphRun run;
  const std::vector<Tensor> grads{run.input(f32({2, 2}, {1, 2, 3, 4})), run.input(bf16({1}, {5})),
                                  run.input(f32({}, {-3}))};
  const Tensor norm = global_norm(grads);
  run.output("norm", norm);
  run.output("down", clip_factor(norm, 2));
  run.output("same", clip_factor(norm, 8.5));
  run.output("zero", clip_factor(constant(0, DType::kF32), 1));
  const std::map<std::string, Value> got = run.run();
  EXPECT_FLOAT_EQ(static_cast<float>(got.at("norm").elements[0]), 8);
  EXPECT_FLOAT_EQ(static_cast<float>(got.at("down").elements[0]), static_cast<float>(2 / (8 + 1e-6)));
  EXPECT_EQ(got.at("same").elements[0], 1);
  EXPECT_EQ(got.at("zero").elements[0], 1);
}

}  // namespace
}  // namespace fettle
