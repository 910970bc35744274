// Defines make_forward: a job's weights as inputs of a program, and what the model's forward pass asks of the job.
#pragma once

#include <string>

#include "graph/program.h"
#include "step/job.h"

namespace fettle {

// One parameter's stack as an input, of its own dtype or else `dtype`.
Tensor add_param(Program& program, const Job& job, const Param& param, const std::string& name, DType dtype);
// A trained parameter's input as the forward pass reads it.
Tensor weight_of(const Job& job, const Param& param, const Tensor& input);
// trained/* and frozen/*, by the stacks' names.
Weights add_weight_inputs(Program& program, const Job& job);
// `weights` outlives it. `squares`: as fetch_layers (offload.h) takes it.
Forward make_forward(const Job& job, const Weights& weights, Remat remat, const Tensor& squares = {});

}  // namespace fettle
