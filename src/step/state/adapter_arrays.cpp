#include "step/state/adapter_arrays.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "adapters/dora.h"
#include "adapters/pissa.h"
#include "base/error.h"
#include "checkpoint/load.h"
#include "graph/ops.h"
#include "models/layer_groups.h"
#include "programs/layouts.h"

namespace fettle {
namespace {

// Runs a program on device arrays and adds its outputs to `outputs` by name.
void apply(Devices& devices, const Program& program, const Bindings& inputs,
           std::map<std::string, DeviceBuffer>& outputs) {
  for (auto& [name, buffer] : run_program(devices.compile(program), inputs))
    outputs.insert_or_assign(name, std::move(buffer));
}

}  // namespace

DeviceBuffer load_from_adapter(const Devices& devices, const Run& run, const Param& param, DType dtype,
                               const AdapterFolder& adapter) {
  const Dims dims = stacked_shape(param, dtype).dims;
  const std::vector<int64_t>& layers = run.adapter.lora->layers;
  auto find = [&](const std::string& name) -> StoredTensor {
    const TensorEntry* entry = adapter.find(name);
    if (entry == nullptr && param.is_lora() && !layers.empty())
      entry = adapter.find(name_of_layer(param.hf_name, layers[0]));
    if (entry == nullptr)
      throw UserError("{}: the tensor '{}' is missing", adapter.file.path().string(), adapter_key(name));
    return {&adapter.file, entry};
  };
  return load_param(devices.client(), param, dtype, layout_of(run.partition(param), dims, run.sharding.mesh()), find,
                    {}, memory_kind(param.memory));
}

namespace {

// Returns the stacked parameters of the base that have LoRA weights.
std::vector<Param> adapted_bases(const Run& run) {
  std::vector<Param> whole;
  for (const std::string& module : run.adapter.lora->modules)
    for (Param& base : run.model.linear(module)) whole.push_back(std::move(base));
  return cut_at_groups(whole, groups_of(run.model));
}

// Returns `stack`, the program's value of a parameter, as [L, ...]. A parameter outside of the layers gets L = 1,
// because the functions of DoRA and PiSSA compute one layer after another.
Tensor with_layers(const Param& param, const Tensor& stack) {
  return param.stacked() ? stack : expand(stack, 0);
}
// Returns x [L, ...] in the shape that the parameter has in programs (stacked_shape).
Tensor as_stack(const Param& param, const Tensor& x) {
  return reshape(x, stacked_shape(param, x.dtype()).dims);
}

// Adds frozen/<base parameter> as an input of the program, and its buffer to `inputs`. Returns the input as [L, ...].
Tensor add_frozen(Program& program, Bindings& inputs, const Run& run, const Param& base, TrainState& state) {
  const std::string name = frozen_input(base);
  inputs[name] = &state.buffers.at(name);
  const Shape shape = stacked_shape(base, base.dtype.value_or(run.precision.frozen));
  return with_layers(base, program.input(name, shape, run.partition(base)));
}

void start_magnitudes(Devices& devices, const Run& run, TrainState& state) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  Bindings inputs;
  for (const Param& base : adapted_bases(run)) {
    const auto held = std::ranges::find_if(run.quantised,
                                           [&](const auto& one) { return one.base.stack_name() == base.stack_name(); });
    const bool quantised = held != run.quantised.end();
    std::vector<Tensor> stacks;
    for (const Param& part : quantised ? held->parts : std::vector<Param>{base})
      stacks.push_back(add_frozen(program, inputs, run, part, state));
    auto weight_of = [&](const std::vector<Tensor>& slices) {
      return quantised ? dequantise(*held, slices, run.precision.frozen) : slices[0];
    };
    const Tensor norms = start_of_magnitudes(stacks, weight_of, run.model.family->fan_in_fan_out);
    for (const Param& param : lora_params_of(run.model, *run.adapter.lora, base))
      if (param.role == Role::kLoraMagnitude)
        program.output(trained_input(param), convert(as_stack(param, norms), run.precision.trained),
                       run.partition(param));
  }
  apply(devices, program, inputs, state.buffers);
}

// PiSSA's subspace iteration uses 2 x rank + kMoreVectors vectors, so that it separates the last wanted singular vector
// from the next one. pissa_iterations below 0 means kManyIterations.
constexpr int64_t kMoreVectors = 16, kManyIterations = 64;

void start_pissa(Devices& devices, const Run& run, TrainState& state) {
  const int64_t iterations = run.adapter.pissa_iterations < 0 ? kManyIterations : run.adapter.pissa_iterations;
  for (const Param& base : adapted_bases(run)) {
    const std::vector<Param> pair = lora_params_of(run.model, *run.adapter.lora, base);
    const int64_t in = pair[0].dims[1], out = product(pair[1].dims) / run.adapter.lora->rank;
    if (run.adapter.lora->rank > std::min(in, out))
      throw UserError(
          "pissa_init: {} is {} by {}, so it has fewer than {} singular values; lower lora_rank, or remove this module "
          "from lora_target",
          base.hf_name, out, in, run.adapter.lora->rank);
    const int64_t width = std::min({2 * run.adapter.lora->rank + kMoreVectors, in, out});
    Program program(run.sharding.mesh());
    BuildScope scope(program.block());
    Bindings inputs;
    const LeadingSubspace subspace = leading_subspace(add_frozen(program, inputs, run, base, state),
                                                      run.model.family->fan_in_fan_out, width, iterations);
    program.output("basis", subspace.basis_LOQ);
    program.output("projected", subspace.projected_LQI);
    std::map<std::string, DeviceBuffer> found;
    apply(devices, program, inputs, found);
    const LoraStart start = principal_lora(found.at("basis").download(), found.at("projected").download(),
                                           run.adapter.lora->rank, run.adapter.lora->scale());
    auto put = [&](const Param& param, const HostArray& values) {
      HostArray shaped(stacked_shape(param, DType::kF32));
      internal_check(values.bytes() == shaped.bytes(), "{}: PiSSA's start {} does not fit {}", param.hf_name,
                     values.shape().to_string(), shaped.shape().to_string());
      std::memcpy(shaped.data(), values.data(), static_cast<size_t>(values.bytes()));
      const Layout layout = layout_of(run.partition(param), shaped.shape().dims, run.sharding.mesh());
      for (const std::string& name : {trained_input(param), start_array(param)})
        state.buffers.insert_or_assign(
            name, DeviceBuffer::upload(devices.client(), shaped.to(run.precision.trained), layout));
    };
    put(pair[0], start.a_LRI);
    put(pair[1], start.b_LOR);
  }
}

}  // namespace

void subtract_start(Devices& devices, const Run& run, TrainState& state) {
  for (const Param& base : adapted_bases(run)) {
    Program program(run.sharding.mesh());
    BuildScope scope(program.block());
    Bindings inputs;
    const Tensor weight = add_frozen(program, inputs, run, base, state);
    std::vector<Tensor> parts;
    for (const Param& param : lora_params_of(run.model, *run.adapter.lora, base)) {
      const std::string name = start_array(param);
      inputs[name] = &state.buffers.at(name);
      const Shape shape = stacked_shape(param, run.precision.trained);
      parts.push_back(convert(with_layers(param, program.input(name, shape, run.partition(param))), DType::kF32));
    }
    const Tensor rest = without_start(weight, parts[0], parts[1], *run.adapter.lora);
    program.output(frozen_input(base), as_stack(base, rest), run.partition(base), frozen_input(base));
    apply(devices, program, inputs, state.buffers);
  }
}

void start_adapter(Devices& devices, const Run& run, TrainState& state) {
  if (run.adapter.lora->dora) start_magnitudes(devices, run, state);
  if (!run.adapter.pissa) return;
  start_pissa(devices, run, state);
  subtract_start(devices, run, state);
}

bool can_switch_off_adapter(const Run& run) {
  return !run.adapter.folder.empty() && run.adapter.merged.empty() &&
         std::ranges::all_of(
             run.trained, [](const Param& param) { return param.role == Role::kLoraA || param.role == Role::kLoraB; });
}

void switch_off_adapter(const Devices& devices, const Run& run, TrainState& state) {
  internal_check(can_switch_off_adapter(run), "switch_off_adapter: the adapter has weights other than A and B of LoRA");
  for (const Param& param : run.trained) {
    DeviceBuffer& weight = state.buffers.at(trained_input(param));
    weight = DeviceBuffer::zeros(devices.client(), weight.shape(), weight.layout(), weight.memory_kind());
  }
}

}  // namespace fettle
