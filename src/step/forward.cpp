#include "step/forward.h"

#include "step/offload.h"

namespace fettle {

Tensor add_param(Program& program, const Run& run, const Param& param, const std::string& name, DType dtype) {
  const Shape shape = stacked_shape(param, run.dtype_of(param, dtype));
  return program.input(name, shape, run.partition(param), param.memory);
}

Tensor weight_of(const Run& run, const Param& param, const Tensor& input) {
  return run.has_master(param) ? copy_of_master(input, run.partition(param), run.precision.compute) : input;
}

Weights add_weight_inputs(Program& program, const Run& run) {
  Weights weights;
  for (const Param& param : run.trained)
    weights.set(param,
                weight_of(run, param, add_param(program, run, param, trained_input(param), run.precision.trained)));
  for (const Param& param : run.frozen)
    weights.set(param, add_param(program, run, param, frozen_input(param), run.precision.frozen));
  return weights;
}

Forward make_forward(const Run& run, const Weights& weights, const ForwardOptions& options) {
  Forward f{.config = run.model.config,
            .weights = weights,
            .sharding = run.sharding,
            .compute = run.precision.compute,
            .remat = options.remat};
  f.float8 = run.precision.float8;
  f.fetch = fetch_layers(run, options.squares);
  f.unpack = unpack_quantised(run.quantised, run.model.family->layer_prefix, run.precision.frozen, run.sharding);
  if (run.adapter.lora && options.adapted) add_lora(f, *run.adapter.lora, options.dropout, options.row_scales);
  return f;
}

}  // namespace fettle
