// Defines batch_loss: from the arrays of one batch to the loss of its stage.
//
// Dims of names: B sequences, T positions, R rows (of preferences two sequences each, else one), K labels.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "step/forward.h"

namespace fettle {

using BatchInputs = std::map<std::string, Tensor>;  // by BatchArray::name

// `rows`: the dims before the positions, [B] or [A, B].
BatchInputs add_batch(Program& program, const Job& job, const Dims& rows, int64_t length);
// What a row counts in the loss's mean, f32 [.., R]: its trained tokens, or 1 when it is no filler.
Tensor counted_rows(const Job& job, const BatchInputs& batch);
// The sum of them.
Tensor count_of(const Job& job, const BatchInputs& batch);

// A model's weights with what its forward pass does beside them.
struct ModelInGraph {
  Weights weights;
  bool adapted = false;
  bool balanced = false;  // its routers' balance is a part of the loss
  Tensor squares = {};    // as fetch_layers takes it
};

// The trained model, and of preferences the one it is compared with.
struct Models {
  ModelInGraph trained;
  std::optional<ModelInGraph> reference;
};

// The trained model, of these weights; for preferences the reference's own become inputs.
Models add_models(Program& program, const Job& job, const Weights& weights);

// f32; what a stage does not have is null.
struct BatchLoss {
  Tensor sum;        // over the trained tokens, or the rows
  Tensor losses_R;   // not of batch_loss over tokens
  Tensor correct_R;  // trained tokens that are the likeliest; of row_losses
  Tensor metrics;    // of preferences and reward models (preference.h)
  Tensor logits_BK;  // of classifiers
};

// `sum` may be differentiated; the balancing loss of experts is in it.
BatchLoss batch_loss(const Job& job, const Models& models, const BatchInputs& batch, Remat remat,
                     const DropoutKey* dropout);
// For evaluation: without dropout and gradients.
BatchLoss row_losses(const Job& job, Models models, const BatchInputs& batch);

}  // namespace fettle
