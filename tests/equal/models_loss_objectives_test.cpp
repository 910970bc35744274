// Tests the losses of supervised tuning other than cross-entropy. They are compared with PyTorch's values and with
// finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/loss.h"

namespace fettle {
namespace {

using Weight = TokenObjective::Weight;

constexpr int64_t kPlaces = 5, kWords = 25;
const std::vector<double> kWanted = {3, -100, 24, 7, 0};

double own_logit(int64_t t, int64_t v) {
  return 3 * std::sin(1 + 0.7 * static_cast<double>(v) + 1.3 * static_cast<double>(t * v));
}
double other_logit(int64_t t, int64_t v) {
  return 2 * std::cos(0.4 * static_cast<double>(v) + 0.9 * static_cast<double>(t));
}

Value logits_of(double (*logit)(int64_t, int64_t)) {
  Value out{{DType::kF32, {1, kPlaces, kWords}}, {}};
  for (int64_t t = 0; t < kPlaces; ++t)
    for (int64_t v = 0; v < kWords; ++v) out.elements.push_back(logit(t, v));
  return out;
}

// Returns the identity as head, so the logits are the hidden states.
Value unit_head() {
  Value out{{DType::kF32, {kWords, kWords}}, {}};
  for (int64_t i = 0; i < kWords * kWords; ++i) out.elements.push_back(i % (kWords + 1) == 0 ? 1 : 0);
  return out;
}

struct Got {
  double sum;
  std::vector<double> slope;  // gradient with respect to the logits, [position, token]
};

// Returns the objective and its gradient, computed in chunks of at most `bytes` bytes of logits.
Got objective_of(const TokenObjective& wanted, int64_t bytes) {
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  const Forward f{.config = config, .weights = none, .sharding = rules};
  GraphRun run;
  const Tensor hidden = run.input(logits_of(own_logit)), head = run.input(unit_head());
  const Tensor targets = run.input(i32({1, kPlaces}, kWanted));
  TokenObjective objective = wanted;
  if (objective.near > 0) {
    objective.other_BTD = run.input(logits_of(other_logit));
    objective.other_head = {head};
  }
  const Tensor sum =
      token_loss(f, hidden, {head}, targets, {.differentiable = true, .objective = objective, .chunk_bytes = bytes})
          .sum;
  run.output("sum", sum);
  run.output("slope", grad(sum, {hidden})[0]);
  const std::map<std::string, Value> got = run.run();
  return {got.at("sum").elements[0], got.at("slope").elements};
}

struct Recorded {
  const char* name;
  TokenObjective objective;
  double sum;
  std::vector<double> slope;  // gradients at the positions and tokens of kShown
};

const std::vector<std::pair<int64_t, int64_t>> kShown = {{0, 3}, {0, 4}, {2, 24}, {3, 1}, {4, 0}, {1, 5}};

// The values were computed in PyTorch in f64 with LLaMA-Factory's functions for these losses, and multiplied by the
// number of trained tokens.
const std::vector<Recorded>& recorded() {
  static const std::vector<Recorded> all = {
      {"dft",
       {.weight = Weight::kProbability},
       0.589812927,
       {-0.00872464943, 1.09099051e-05, -0.000361082401, 0.000187818805, -0.108062426, 0}},
      {"eaft",
       {.weight = Weight::kEntropy},
       13.0939929,
       {-0.784786927, 0.000981351855, -0.793538685, 0.000961226774, -0.66368713, 0}},
      {"eaft, power 2",
       {.weight = Weight::kEntropy, .power = 2},
       10.3125891,
       {-0.621359808, 0.000776991282, -0.629931185, 0.00075283066, -0.502403877, 0}},
      {"asft",
       {.weight = Weight::kProbability, .near = 0.1},
       1.68944005,
       {-0.0114319274, -0.00150455712, -0.00566051285, 5.33830356e-05, -0.095988112, 0}},
  };
  return all;
}

TEST(TokenObjective, ValuesAndSlopesAreThoseOfPyTorch) {
  for (const Recorded& one : recorded())
    for (const int64_t bytes : {int64_t{1} << 20, int64_t{1}}) {
      SCOPED_TRACE(one.name);
      const Got got = objective_of(one.objective, bytes);
      EXPECT_NEAR(got.sum, one.sum, 2e-6 * one.sum);
      for (size_t i = 0; i < kShown.size(); ++i)
        EXPECT_NEAR(got.slope[static_cast<size_t>(kShown[i].first * kWords + kShown[i].second)], one.slope[i], 2e-6);
    }
}

double log_total(const std::vector<double>& x) {
  double total = 0;
  for (double one : x) total += std::exp(one);
  return std::log(total);
}

// Computes the objective in double by its definition. `weights` has the weight of each token.
double defined(const std::vector<std::vector<double>>& x, const std::vector<double>& weights, double near) {
  double sum = 0;
  for (int64_t t = 0; t < kPlaces; ++t) {
    if (kWanted[t] < 0) continue;
    const double total = log_total(x[t]);
    sum += weights[t] * (total - x[t][static_cast<size_t>(kWanted[t])]);
    if (near == 0) continue;
    std::vector<double> other;
    for (int64_t v = 0; v < kWords; ++v) other.push_back(other_logit(t, v));
    const double other_total = log_total(other);
    for (int64_t v = 0; v < kWords; ++v)
      sum += near * std::exp(other[v] - other_total) * ((other[v] - other_total) - (x[t][v] - total));
  }
  return sum;
}

TEST(TokenObjective, SlopesAreTheFiniteDifferencesWithFixedWeights) {
  std::vector<std::vector<double>> x(kPlaces, std::vector<double>(kWords));
  for (int64_t t = 0; t < kPlaces; ++t)
    for (int64_t v = 0; v < kWords; ++v) x[t][v] = own_logit(t, v);
  for (const Recorded& one : recorded()) {
    SCOPED_TRACE(one.name);
    std::vector<double> weights(kPlaces, 0);
    for (int64_t t = 0; t < kPlaces; ++t) {
      if (kWanted[t] < 0) continue;
      if (one.objective.weight == Weight::kProbability) {
        weights[t] = std::exp(x[t][static_cast<size_t>(kWanted[t])] - log_total(x[t]));
        continue;
      }
      std::vector<double> most = x[t];
      std::sort(most.rbegin(), most.rend());
      most.resize(20);
      const double total = log_total(most);
      double entropy = 0;
      for (double v : most) entropy -= std::exp(v - total) * (v - total);
      weights[t] = std::pow(entropy / 3, one.objective.power);
    }
    const Got got = objective_of(one.objective, 1 << 20);
    EXPECT_NEAR(got.sum, defined(x, weights, one.objective.near), 1e-5);
    constexpr double kStep = 1e-4;
    for (int64_t t = 0; t < kPlaces; ++t)
      for (int64_t v = 0; v < kWords; ++v) {
        auto moved = [&](double by) {
          auto near = x;
          near[t][v] += by;
          return defined(near, weights, one.objective.near);
        };
        EXPECT_NEAR(got.slope[static_cast<size_t>(t * kWords + v)], (moved(kStep) - moved(-kStep)) / (2 * kStep), 3e-6)
            << t << ' ' << v;
      }
  }
}

// The weight is the entropy over the 20 largest logits, divided by 3. If all 25 logits are equal, the entropy is still
// over only 20 of them: log(20).
TEST(TokenObjective, EqualLogitsCountOneByOne) {
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  const Forward f{.config = config, .weights = none, .sharding = rules};
  GraphRun run;
  const Tensor hidden = run.input(f32({1, 1, kWords}, std::vector<double>(kWords, 0.5)));
  const Tensor sum = token_loss(f, hidden, {run.input(unit_head())}, run.input(i32({1, 1}, {2})),
                                {.differentiable = true, .objective = {.weight = Weight::kEntropy}})
                         .sum;
  run.output("sum", sum);
  EXPECT_NEAR(run.run().at("sum").elements[0], std::log(25.0) * std::log(20.0) / 3, 1e-5);
}

}  // namespace
}  // namespace fettle
