#include "step/forward.h"

#include "step/offload.h"

namespace fettle {

Tensor add_param(Program& program, const Job& job, const Param& param, const std::string& name, DType dtype) {
  const Shape shape = stacked_shape(param, param.dtype.value_or(dtype));
  return program.input(name, shape, job.partition(param), param.memory);
}

Tensor weight_of(const Job& job, const Param& param, const Tensor& input) {
  return job.has_master(param) ? copy_of_master(input, job.partition(param), job.compute) : input;
}

Weights add_weight_inputs(Program& program, const Job& job) {
  Weights weights;
  for (const Param& param : job.trained)
    weights.set(param, weight_of(job, param, add_param(program, job, param, trained_input(param), job.trained_dtype)));
  for (const Param& param : job.frozen)
    weights.set(param, add_param(program, job, param, frozen_input(param), job.frozen_dtype));
  return weights;
}

Forward make_forward(const Job& job, const Weights& weights, Remat remat, const Tensor& squares) {
  Forward f{
      .config = job.model.config, .weights = weights, .sharding = job.sharding, .compute = job.compute, .remat = remat};
  f.float8 = job.float8;
  f.fetch = fetch_layers(job, squares);
  f.unpack = unpack_quantised(job.quantised, job.model.family->layer_prefix, job.frozen_dtype, job.sharding);
  return f;
}

}  // namespace fettle
