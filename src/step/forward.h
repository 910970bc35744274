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
// `weights` outlives it. `squares`: as fetch_layers (offload.h) takes it.
Forward make_forward(const Run& run, const Weights& weights, Remat remat, const Tensor& squares = {});

}  // namespace fettle
