// Defines make_forward: a run's weights as inputs of a program, and what the model's forward pass asks of the run.
#pragma once

#include <string>

#include "graph/program.h"
#include "run/run.h"

namespace fettle {

// One parameter's stack as an input, of its own dtype or else `dtype`.
Tensor add_param(Program& program, const Run& run, const Param& param, const std::string& name, DType dtype);
// A trained parameter's input as the forward pass reads it.
Tensor weight_of(const Run& run, const Param& param, const Tensor& input);
// trained/* and frozen/*, by the stacks' names.
Weights add_weight_inputs(Program& program, const Run& run);
struct ForwardOptions {
  Remat remat = Remat::kFull;
  bool adapted = true;                  // with the run's adapter, when it has one
  const DropoutKey* dropout = nullptr;  // of the adapter; null: nothing is dropped
  Tensor squares = {};                  // as fetch_layers (offload.h) takes it
};
// The forward pass of the run's model, ready but for the batch. `weights` outlives it.
Forward make_forward(const Run& run, const Weights& weights, const ForwardOptions& options = {});

}  // namespace fettle
