// Defines the token loss: cross-entropy in chunks of positions, so that logits [B, T, V] never exist as a whole.
#pragma once

#include "models/model.h"

namespace fettle {

// The linear layer that gives the logits of tokens.
struct TokenHead {
  Tensor weight_VD;
  Tensor bias_V = {};  // null: no bias
};

struct TokenLoss {
  Tensor sum;         // f32 scalar: weighted sum over the trained tokens; differentiable if LossOptions ask for it
  Tensor losses_BT;   // f32, 0 for tokens that are not trained
  Tensor correct_BT;  // f32, 1 where the largest logit is the target's
};

// What token_loss() sums up, if it is not plain cross-entropy. Each token's cross-entropy gets a weight, and a term may
// be added that compares this model with another model. Gradients flow neither through the weight nor through the other
// model.
struct TokenObjective {
  enum class Weight {
    kOne,
    kProbability,  // the target's probability. Source: DFT, Wu 2025
    kEntropy,      // (entropy of the 20 most likely tokens / 3) ^ power. Source: EAFT, 2026, which also uses 20 tokens
  };
  Weight weight = Weight::kOne;
  double power = 1;
  // Coefficient of an extra loss term. Each trained token adds `near` * KL(q | p). q is the other model's prediction, p
  // is this model's. Source: ASFT, Zhu 2025.
  double near = 0;
  Tensor other_BTD;      // the other model's hidden states; null: no such term
  TokenHead other_head;  // the other model's head
};

struct LossOptions {
  bool differentiable = false;    // makes `sum` differentiable; the gradient is computed together with the value
  bool head_trained = false;      // also makes `sum` differentiable with respect to the head
  Tensor weights_BT;              // f32: factor on the loss of each token in `sum`; null: 1
  TokenObjective objective = {};  // the objective of `sum`; losses_BT are always cross-entropy
  int64_t chunk_bytes = int64_t{128} << 20;  // limit for one chunk's f32 logits on one device
  // Limit for a device's own sum of the head's gradient, in f32. If the sum takes more, the devices exchange the
  // gradient after each chunk.
  int64_t own_sum_bytes = int64_t{3} << 30;
};

struct CrossEntropy {
  Tensor losses_BC, correct_BC;  // f32; `correct` is 1 if the target has the largest logit; both are 0 without a target
  Tensor slope_BCV;              // derivative of sum(losses * weights) with respect to the logits
};
// Returns the cross-entropy of f32 logits. If `weights_BC` is null, all weights are 1. The slope has the dtype
// `compute`. The function is the composite "cross_entropy" (graph/composite.h), which has no gradient of its own.
CrossEntropy cross_entropy(const ShardingRules& rules, const Tensor& logits_BCV, const Tensor& targets_BC,
                           const Tensor& weights_BC, DType compute);

// Returns the loss. Takes hidden_BTD in f.compute, and targets_BT in i32 (kIgnore = -100: not trained).
TokenLoss token_loss(const Forward& f, const Tensor& hidden_BTD, const TokenHead& head, const Tensor& targets_BT,
                     const LossOptions& options);

// Returns the head that computes the logits. If the family normalises the head (normalised_head), each of its V vectors
// has length 1.
TokenHead head_of(const Model& model, const Weights& weights);
// Returns the f32 logits [.., V] of hidden states [.., D].
Tensor logits(const Forward& f, const Tensor& hidden, const TokenHead& head);

}  // namespace fettle
