// Defines the token loss: cross-entropy in chunks of positions, so that [B, T, V] logits never exist whole.
#pragma once

#include "models/model.h"

namespace fettle {

struct TokenLoss {
  Tensor sum;         // f32 scalar over the trained tokens, weighted; differentiable by hidden and head
  Tensor losses_BT;   // f32, 0 where not trained
  Tensor correct_BT;  // f32, 1 where the largest logit is the target's
};

struct LossOptions {
  bool differentiable = false;               // makes `sum` differentiable; the gradient is computed beside the value
  bool head_trained = false;                 // ... by the head as well
  Tensor row_weights;                        // f32 [B]: factor on each row's losses in `sum`; null: 1
  int64_t chunk_bytes = int64_t{128} << 20;  // f32 logits of one chunk, on one device
};

// hidden_BTD in f.compute, head_VD, targets_BT i32 (kIgnore = -100 where not trained).
TokenLoss token_loss(const Forward& f, const Tensor& hidden_BTD, const Tensor& head_VD, const Tensor& targets_BT,
                     const LossOptions& options);

// The head [V, D] that logits are taken with: its parameter, or that with rows of length 1 where the family has it so.
Tensor head_of(const Model& model, const Weights& weights);
// Logits [.., V] in f32 of hidden states [.., D].
Tensor logits(const Forward& f, const Tensor& hidden, const Tensor& head_VD);

}  // namespace fettle
