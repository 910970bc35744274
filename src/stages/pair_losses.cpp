#include "stages/pair_losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

Tensor margin(const PairScores& scores, const PairLossKeys& keys) {
  return (scores.chosen - scores.rejected) * keys.beta;
}

// Returns the loss of a pair whose replies may be swapped with the probability keys.smoothing.
Tensor smoothed(const Tensor& margin, const PairLossKeys& keys) {
  const Tensor loss = -log_sigmoid(margin);
  return keys.smoothing > 0 ? loss * (1 - keys.smoothing) - log_sigmoid(-margin) * keys.smoothing : loss;
}

Tensor sigmoid(const PairScores& scores, const PairLossKeys& keys) {
  return smoothed(margin(scores, keys), keys);
}

Tensor simpo(const PairScores& scores, const PairLossKeys& keys) {
  return smoothed(margin(scores, keys) - keys.gamma, keys);
}

Tensor sigmoid_norm(const PairScores& scores, const PairLossKeys& keys) {
  return -log_sigmoid(margin(scores, keys));
}

Tensor hinge(const PairScores& scores, const PairLossKeys& keys) {
  return activation("relu", 1.0 - margin(scores, keys));
}

Tensor ipo(const PairScores& scores, const PairLossKeys& keys) {
  const Tensor off = scores.chosen - scores.rejected - 1 / (2 * keys.beta);
  return off * off;
}

// The mean of this loss over pairs of which a share is swapped is that of `sigmoid` over pairs of which none is.
Tensor robust(const PairScores& scores, const PairLossKeys& keys) {
  const Tensor x = margin(scores, keys);
  return (log_sigmoid(-x) * keys.smoothing - log_sigmoid(x) * (1 - keys.smoothing)) / (1 - 2 * keys.smoothing);
}

// The divergence of the two replies' probabilities from 1 - smoothing and smoothing.
Tensor exo_pair(const PairScores& scores, const PairLossKeys& keys) {
  const Tensor x = margin(scores, keys);
  return logistic(x) * (log_sigmoid(x) - std::log1p(-keys.smoothing)) +
         logistic(-x) * (log_sigmoid(-x) - std::log(keys.smoothing));
}

Tensor nca_pair(const PairScores& scores, const PairLossKeys& keys) {
  const Tensor good = scores.chosen * keys.beta, bad = scores.rejected * keys.beta;
  return -log_sigmoid(good) - (log_sigmoid(-good) + log_sigmoid(-bad)) * 0.5;
}

Tensor bco_pair(const PairScores& scores, const PairLossKeys& keys) {
  return -log_sigmoid(scores.chosen * keys.beta) - log_sigmoid(-(scores.rejected * keys.beta));
}

Tensor sppo_hard(const PairScores& scores, const PairLossKeys& keys) {
  const Tensor good = scores.chosen - 0.5 / keys.beta, bad = scores.rejected + 0.5 / keys.beta;
  return good * good + bad * bad;
}

Tensor apo_zero(const PairScores& scores, const PairLossKeys& keys) {
  return logistic(-(scores.chosen * keys.beta)) + logistic(scores.rejected * keys.beta);
}

Tensor apo_down(const PairScores& scores, const PairLossKeys& keys) {
  return logistic(scores.chosen * keys.beta) + logistic(-margin(scores, keys));
}

Tensor discopop(const PairScores& scores, const PairLossKeys& keys) {
  constexpr double kTemperature = 0.05;
  const Tensor x = margin(scores, keys), mixed = logistic(x / kTemperature);
  return exp(-x) * mixed - log_sigmoid(x) * (1.0 - mixed);
}

}  // namespace

const std::vector<PairLoss>& pair_losses() {
  static const std::vector<PairLoss> rows = {
      {.name = "sigmoid", .loss = sigmoid, .smoothing = Smoothing::kAllowed},
      {.name = "hinge", .loss = hinge},
      {.name = "ipo", .loss = ipo, .averages = true},
      {.name = "simpo", .loss = simpo, .smoothing = Smoothing::kAllowed, .compares = false},
      {.name = "robust", .loss = robust, .smoothing = Smoothing::kAllowed},
      {.name = "exo_pair", .loss = exo_pair, .smoothing = Smoothing::kNeeded},
      {.name = "nca_pair", .loss = nca_pair},
      {.name = "bco_pair", .loss = bco_pair},
      {.name = "sppo_hard", .loss = sppo_hard},
      {.name = "apo_zero", .loss = apo_zero},
      {.name = "apo_down", .loss = apo_down},
      {.name = "discopop", .loss = discopop},
      {.name = "sigmoid_norm", .loss = sigmoid_norm, .averages = true},
  };
  return rows;
}

const PairLoss* find_pair_loss(std::string_view name) {
  const auto row = std::ranges::find(pair_losses(), name, &PairLoss::name);
  return row == pair_losses().end() ? nullptr : &*row;
}

std::string names_of_pair_losses(bool (*which)(const PairLoss& loss)) {
  std::vector<std::string_view> names;
  for (const PairLoss& loss : pair_losses())
    if (which(loss)) names.push_back(loss.name);
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

}  // namespace fettle
