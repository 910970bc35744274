// Defines batch_loss: from the arrays of one batch to the loss of its run's stage.
#pragma once

#include <optional>

#include "graph/program.h"
#include "step/forward.h"

namespace fettle {

// The batch's arrays as inputs of the program. `sequences`: the dims before the positions, [B] or [A, B].
BatchInputs add_batch(Program& program, const Run& run, const Dims& sequences, int64_t length);
// What the losses of a batch are divided by: the sum of Stage::counts. f32 scalar.
Tensor count_of(const Run& run, const BatchInputs& batch);

// A model's weights with what its forward pass does beside them.
struct ModelInGraph {
  Weights weights;
  bool adapted = false;
  bool balanced = false;  // its routers' balance is a part of the loss
  Tensor squares = {};    // as fetch_layers takes it
};

// The trained model, and the reference model where the loss compares with one.
struct Models {
  ModelInGraph trained;
  std::optional<ModelInGraph> reference;
};

// The trained model has these weights; the reference model's own become inputs.
Models add_models(Program& program, const Run& run, const Weights& weights);

// The stage's loss, of which `sum` may be differentiated; the balancing loss of experts is in it.
BatchLoss batch_loss(const Run& run, const Models& models, const BatchInputs& batch, Remat remat,
                     const DropoutKey* dropout);
// For evaluation: without dropout and gradients.
BatchLoss row_losses(const Run& run, Models models, const BatchInputs& batch);

}  // namespace fettle
