#include "step/disk/update_program.h"

#include <algorithm>

#include "graph/ops.h"
#include "optim/update.h"
#include "programs/layouts.h"
#include "step/forward.h"
#include "step/offload.h"

namespace fettle {

std::string gradient_output(const Param& param) {
  return "gradient/" + param.stack_name();
}

DType gradient_dtype(const Run& run, const Param& param) {
  return run.batch.micro_batches > 1 ? DType::kF32 : run.dtype_of(param, run.precision.trained);
}

std::vector<StateArray> disk_arrays(const Run& run, const Param& param) {
  std::vector<StateArray> arrays = optimizer_state(run, param);
  if (run.on_disk(param)) arrays.insert(arrays.begin(), trained_array(run, param));
  return arrays;
}

std::vector<StateArray> layer_arrays(const Run& run, const Param& param) {
  std::vector<StateArray> arrays = disk_arrays(run, param);
  for (StateArray& array : arrays)
    if (param.stacked()) array.shape.dims[0] = 1;
  return arrays;
}

Program build_update(const Run& run, const Param& param) {
  Program program(run.sharding.mesh(), choose_among(run.target.kernels));
  BuildScope scope(program.block());
  PathScope path("update");
  const Partition partition = run.partition(param);
  HeldParam held{.weight = add_param(program, run, param, "weight", run.precision.trained)};
  held.grad = program.input("gradient", held.weight.shape().with_dtype(gradient_dtype(run, param)), partition,
                            gradient_on_host(run, param) ? Memory::kHost : Memory::kDevice);
  const Tensor layer = param.stacked() ? program.input("layer", {DType::kI32, {}}) : Tensor{};
  const std::vector<StateArray> arrays = layer_arrays(run, param);
  for (size_t s = 0; s < arrays.size(); ++s)
    held.state.push_back(program.input(fmt::format("state/{}", s), arrays[s].shape, arrays[s].partition));
  const Tensor divisor = program.input(kDivisor, {DType::kF32, {}});
  const Tensor factor = run.update.max_grad_norm > 0 ? program.input(kFactor, {DType::kF32, {}}) : Tensor{};
  std::map<std::string, Tensor> scalars;
  for (const auto& [name, value] : run.optimizer.scalars(1, 0)) scalars[name] = program.input(name, {DType::kF32, {}});

  auto scaled = [&](const Tensor& g) { return scaled_gradient(g, divisor, factor); };
  Updated next;
  if (param.stacked()) {
    next = update_layer(run, param, layer, held, scaled, scalars);
  } else {
    next = run.optimizer.update(optim_weight(run, param),
                                {convert(held.weight, DType::kF32), scaled(held.grad), held.state, scalars});
    next.weight = convert(next.weight, run.precision.trained);
  }
  program.output("weight", next.weight, partition, "weight", param.memory);
  for (size_t s = 0; s < arrays.size(); ++s)
    program.output(fmt::format("state/{}", s), next.state[s], arrays[s].partition, fmt::format("state/{}", s));
  return program;
}

namespace {

// Returns how many bytes a parameter or a gradient takes in one device's memory. Returns 0 for an array in host memory.
int64_t device_bytes(const Run& run, const Param& param, DType dtype, Memory memory) {
  if (memory != Memory::kDevice) return 0;
  const Dims dims = stacked_shape(param, dtype).dims;
  return layout_of(run.partition(param), dims, run.sharding.mesh()).boxes[0].elements() * byte_size(dtype);
}

}  // namespace

MemoryStats with_updates(const Run& run, MemoryStats step, const std::function<MemoryStats(const Program&)>& stats_of) {
  if (!run.state_on_disk()) return step;
  int64_t all = 0, most = 0;
  for (const Param& param : run.frozen)
    all += device_bytes(run, param, run.dtype_of(param, run.precision.frozen), param.memory);
  for (const Param& param : run.reference.params)
    all += device_bytes(run, param, run.dtype_of(param, run.reference_dtype()), param.memory);
  for (const Param& param : run.trained) {
    const Memory grad_memory = gradient_on_host(run, param) ? Memory::kHost : Memory::kDevice;
    const int64_t own = device_bytes(run, param, run.dtype_of(param, run.precision.trained), param.memory) +
                        device_bytes(run, param, gradient_dtype(run, param), grad_memory);
    all += own;
    most = std::max(most, stats_of(build_update(run, param)).peak - own);
  }
  // The arrays of two layers may be on the device: one is copied to the host while the next one is updated.
  step.peak = std::max(step.peak, all + 2 * most);
  return step;
}

}  // namespace fettle
