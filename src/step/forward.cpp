#include "step/forward.h"

#include "step/offload.h"

namespace fettle {

Tensor add_row(Program& program, const Job& job, const WeightRow& row, const std::string& name, DType dtype) {
  const Shape shape = stacked_shape(row, job.model.config, row.dtype.value_or(dtype));
  return program.input(name, shape, job.partition(row), job.weight_memory(row));
}

Tensor weight_of(const Job& job, const WeightRow& row, const Tensor& input) {
  return job.has_master(row) ? copy_of_master(input, job.partition(row), job.compute) : input;
}

Weights add_weight_inputs(Program& program, const Job& job) {
  Weights weights;
  for (const WeightRow& row : job.trained)
    weights[stack_name(row)] = weight_of(job, row, add_row(program, job, row, trained_input(row), job.trained_dtype));
  for (const WeightRow& row : job.frozen)
    weights[stack_name(row)] = add_row(program, job, row, frozen_input(row), job.frozen_dtype);
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
