// Defines make_forward, which sets up the model's forward pass for a run, and functions that add the run's weights as
// inputs.
#pragma once

#include <string>

#include "graph/program.h"
#include "graph/random.h"
#include "run/run.h"

namespace fettle {

// Adds a parameter as an input of the program, and returns it. The input is stacked over the layers and has the dtype
// Run::dtype_of(param, dtype).
Tensor add_param(Program& program, const Run& run, const Param& param, const std::string& name, DType dtype);
// Returns the weight that the forward pass uses: a copy in the dtype Precision::compute if `input` is a master weight,
// else `input` itself.
Tensor weight_of(const Run& run, const Param& param, const Tensor& input);
// Adds the run's weights as inputs trained/* and frozen/*, and returns them by Param::stack_name().
Weights add_weight_inputs(Program& program, const Run& run);
struct ForwardOptions {
  RematPolicy remat = {};
  bool adapted = true;                   // use the run's adapter when it has one
  const PositionKey* dropout = nullptr;  // for the adapter; null: nothing is dropped
  Tensor squares = {};                   // see fetch_layers (offload.h)
  Tensor row_scales = {};                // see add_lora (lora.h)
};
// Returns the model's forward pass with everything set except the batch. `run` and `weights` must outlive the result.
Forward make_forward(const Run& run, const Weights& weights, const ForwardOptions& options = {});

}  // namespace fettle
