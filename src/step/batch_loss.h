// Defines batch_loss, which computes the loss of the run's stage from the arrays of one batch.
#pragma once

#include <optional>

#include "graph/program.h"
#include "step/forward.h"
#include "step/state/batch_arrays.h"

namespace fettle {

// Adds the arrays of batch_arrays() as inputs of the program.
BatchInputs add_batch(Program& program, const Run& run, const BatchShape& shape, BatchExtent extent);
// Returns the number by which a batch's losses are divided, an f32 scalar: the sum of Stage::counts.
Tensor count_of(const Run& run, const BatchInputs& batch);

// A model's weights in the graph, and the options of its forward pass.
struct ModelInGraph {
  Weights weights;
  bool adapted = false;
  // Whether the pass computes the load-balancing loss of the experts (if the model's config has one) and the loads of
  // the experts (if the run moves the routers' corrections).
  bool balanced = false;
  Tensor squares = {};  // see fetch_layers (offload.h)
};

// The trained model, and the reference model when the loss needs one.
struct Models {
  ModelInGraph trained;
  std::optional<ModelInGraph> reference;
};

// Makes the models. The trained model uses `weights`. The reference model, if the run has one, has frozen copies of the
// parameters in run.reference.params, which become inputs of the program. Its other weights come from `weights`.
Models add_models(Program& program, const Run& run, const Weights& weights);

// Returns the stage's loss of `batch`, including the load-balancing loss of experts. `batch` is one micro-batch; with a
// pipeline, it has all micro-batches of the step. BatchLoss::sum can be differentiated. `seed` (u32) selects the
// elements that dropout drops.
BatchLoss batch_loss(const Run& run, const Models& models, const BatchInputs& batch, const RematPolicy& remat,
                     const Tensor& seed);
// Returns the loss for evaluation: without dropout, gradients and load-balancing loss.
BatchLoss row_losses(const Run& run, Models models, const BatchInputs& batch);
// Returns the logits of the tokens `candidates`, f32 [S, candidates]. Each sequence has one trained token; the logits
// are those of the position before it. The values of sequences that the micro-batch lacks do not matter.
Tensor next_token_logits(const Run& run, Models models, const BatchInputs& batch,
                         const std::vector<int32_t>& candidates);

}  // namespace fettle
