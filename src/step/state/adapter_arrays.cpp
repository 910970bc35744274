#include "step/state/adapter_arrays.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "adapters/merge.h"
#include "adapters/pissa.h"
#include "base/error.h"
#include "checkpoint/load.h"
#include "graph/ops.h"
#include "programs/signature.h"

namespace fettle {
namespace {

const std::string kPrefix = "base_model.model.";

// Runs a program of arrays that are on the devices; outputs named as inputs replace them.
void apply(Devices& devices, const Program& program, const Bindings& inputs,
           std::map<std::string, DeviceBuffer>& outputs) {
  for (auto& [name, buffer] : run(devices.compile(program), inputs)) outputs.insert_or_assign(name, std::move(buffer));
}

}  // namespace

AdapterFolder open_adapter(const std::filesystem::path& folder) {
  return read_adapter(folder, {.dora = true, .modules_to_save = true, .target_parameters = true});
}

LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model) {
  const AdapterConfig& config = adapter.config;
  const std::string file = adapter.file.path().string();
  LoraOptions options{.rank = config.r, .alpha = config.lora_alpha, .rslora = config.use_rslora};
  options.fan_in_fan_out = model.family->fan_in_fan_out;
  options.dora = config.use_dora;
  options.saved = config.modules_to_save;
  if (config.task_type == "SEQ_CLS" && !model.classifies())
    throw UserError(
        "{}: it is a classifier's adapter (task_type SEQ_CLS); set stage: cls, or rm for one "
        "that scores replies",
        file);
  // PEFT lists the names that heads may have; a model has one of them.
  if (model.classifies())
    std::erase_if(options.saved, [&](const std::string& name) {
      const bool of_peft = name == "classifier" || name == "score";
      return of_peft &&
             std::ranges::none_of(model.params, [&](const Param& param) { return saved_with(param.hf_name, name); });
    });
  size_t known = 0;
  // The tensors say exactly which modules have a pair.
  for (const std::string& linear : model.linears()) {
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) {
      const std::string module = name_of_layer(model.family->layer_prefix + linear, layer);
      if (adapter.find(module, AdapterPart::kLoraA) == nullptr) continue;
      layers.push_back(layer);
      if (config.rank(module) != config.r || config.alpha(module) != config.lora_alpha)
        throw UserError("{}: ranks or alphas that differ by module are not supported (here: {})", file, module);
    }
    if (layers.empty()) continue;
    if (!options.modules.empty() && layers != options.layers)
      throw UserError("{}: {} and {} have pairs on different layers, which is not supported", file, options.modules[0],
                      linear);
    options.modules.push_back(linear);
    options.layers = layers;
    known += layers.size() * (options.dora ? 3 : 2);
  }
  if (static_cast<int64_t>(options.layers.size()) == model.config.num_hidden_layers) options.layers.clear();
  if (!config.target_parameters.empty()) {
    options.parameters = expert_parameters(model, config.target_parameters);
    if (!options.layers.empty())
      throw UserError("{}: pairs of experts beside linear layers with pairs on some layers only are not supported",
                      file);
    for (const Param& param : expert_lora_params(model, options))
      for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer)
        known += adapter.file.find(kPrefix + param.stored_name(layer)) != nullptr ? 1 : 0;
  }
  std::set<std::string> saved;
  for (const Param& param : saved_params(model, options))
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string name = param.stored_name(i);
      saved.insert(name);
      if (adapter.find(name, AdapterPart::kSaved) == nullptr)
        throw UserError("{}: modules_to_save names '{}', whose tensor is missing; save the adapter again", file, name);
    }
  for (const AdapterTensor& tensor : adapter.tensors)
    known += tensor.part == AdapterPart::kSaved && saved.contains(tensor.module) ? 1 : 0;
  if (known != adapter.tensors.size())
    throw UserError(
        "{}: {} tensors, of which {} belong to linear layers of the blocks or to saved modules of this {} model; is it "
        "another model's adapter? Pairs outside of the blocks (a pooler's, of PEFT's all-linear) are not supported: "
        "merge it with PEFT",
        file, adapter.tensors.size(), known, model.family->model_type);
  return options;
}

DeviceBuffer load_adapter_param(const Devices& devices, const Job& job, const Param& param, DType dtype,
                                const AdapterFolder& adapter, const LoraOptions& options,
                                const std::string& memory_kind) {
  const Dims dims = stacked_shape(param, dtype).dims;
  auto find = [&](const std::string& name) -> StoredTensor {
    const TensorEntry* entry = adapter.file.find(kPrefix + name);
    if (entry == nullptr && param.is_lora() && !options.layers.empty())
      entry = adapter.file.find(kPrefix + name_of_layer(param.hf_name, options.layers[0]));
    if (entry == nullptr) throw UserError("{}: no tensor '{}{}'", adapter.file.path().string(), kPrefix, name);
    return {&adapter.file, entry};
  };
  return load_param(devices.client(), param, dtype, layout_of(job.partition(param), dims, job.sharding.mesh()), find,
                    {}, memory_kind);
}

DeviceBuffer load_trained(const Devices& devices, const Job& job, const Param& param, const AdapterFolder& adapter) {
  return load_adapter_param(devices, job, param, job.trained_dtype, adapter, *job.lora, memory_kind(param.memory));
}

namespace {

// frozen/<base parameter> as the program's input, bound to its buffer.
Tensor add_frozen(Program& program, Bindings& inputs, const Job& job, const Param& base, TrainState& state) {
  const std::string name = frozen_input(base);
  inputs[name] = &state.buffers.at(name);
  const Shape shape = stacked_shape(base, base.dtype.value_or(job.frozen_dtype));
  return program.input(name, shape, job.partition(base));
}

std::vector<Param> lora_params_of(const Job& job, const std::string& module) {
  LoraOptions one = *job.lora;
  one.modules = {module};
  one.parameters.clear();
  return lora_params(job.model, one);
}

void start_magnitudes(Devices& devices, const Job& job, TrainState& state) {
  Program program(job.sharding.mesh());
  BuildScope scope(program.block());
  Bindings inputs;
  for (const std::string& module : job.lora->modules) {
    const Param& base = job.model.linear(module);
    const auto held =
        std::ranges::find_if(job.quantised, [&](const auto& one) { return one.base.hf_name == base.hf_name; });
    const bool quantised = held != job.quantised.end();
    std::vector<Tensor> stacks;
    for (const Param& part : quantised ? held->parts : std::vector<Param>{base})
      stacks.push_back(add_frozen(program, inputs, job, part, state));
    auto weight_of = [&](const std::vector<Tensor>& slices) {
      return quantised ? convert(dequantise(*held, slices), job.frozen_dtype) : slices[0];
    };
    const Tensor norms = row_norms(stacks, weight_of, job.model.family->fan_in_fan_out);
    for (const Param& param : lora_params_of(job, module))
      if (param.role == Role::kLoraMagnitude)
        program.output(trained_input(param), convert(norms, job.trained_dtype), job.partition(param));
  }
  apply(devices, program, inputs, state.buffers);
}

// More vectors than the rank, so that the last of it are told apart from those that follow.
constexpr int64_t kMoreVectors = 16, kManyIterations = 64;

void start_pissa(Devices& devices, const Job& job, TrainState& state) {
  const int64_t iterations = job.recipe.pissa_iter < 0 ? kManyIterations : job.recipe.pissa_iter;
  for (const std::string& module : job.lora->modules) {
    const Param& base = job.model.linear(module);
    const std::vector<Param> pair = lora_params_of(job, module);
    const int64_t in = pair[0].dims[1], out = product(pair[1].dims) / job.lora->rank;
    if (job.lora->rank > std::min(in, out))
      throw UserError(
          "pissa_init: {} is {} by {}, which has no {} singular values; lower lora_rank or leave it out of "
          "lora_target",
          module, out, in, job.lora->rank);
    const int64_t width = std::min({2 * job.lora->rank + kMoreVectors, in, out});
    Program program(job.sharding.mesh());
    BuildScope scope(program.block());
    Bindings inputs;
    const LeadingSubspace subspace = leading_subspace(add_frozen(program, inputs, job, base, state),
                                                      job.model.family->fan_in_fan_out, width, iterations);
    program.output("basis", subspace.basis_LOQ);
    program.output("projected", subspace.projected_LQI);
    std::map<std::string, DeviceBuffer> found;
    apply(devices, program, inputs, found);
    const PairStart start = principal_pair(found.at("basis").download(), found.at("projected").download(),
                                           job.lora->rank, job.lora->scale());
    auto put = [&](const Param& param, const HostArray& values) {
      HostArray shaped(stacked_shape(param, DType::kF32));
      std::memcpy(shaped.data(), values.data(), static_cast<size_t>(values.bytes()));
      const Layout layout = layout_of(job.partition(param), shaped.shape().dims, job.sharding.mesh());
      for (const std::string& name : {trained_input(param), start_array(param)})
        state.buffers.insert_or_assign(name,
                                       DeviceBuffer::upload(devices.client(), shaped.to(job.trained_dtype), layout));
    };
    put(pair[0], start.a_LRI);
    put(pair[1], start.b_LOR);
  }
}

}  // namespace

void subtract_start(Devices& devices, const Job& job, TrainState& state) {
  for (const std::string& module : job.lora->modules) {
    const Param& base = job.model.linear(module);
    Program program(job.sharding.mesh());
    BuildScope scope(program.block());
    Bindings inputs;
    const Tensor weight = add_frozen(program, inputs, job, base, state);
    std::vector<Tensor> parts;
    for (const Param& param : lora_params_of(job, module)) {
      const std::string name = start_array(param);
      inputs[name] = &state.buffers.at(name);
      const Shape shape = stacked_shape(param, job.trained_dtype);
      parts.push_back(convert(program.input(name, shape, job.partition(param)), DType::kF32));
    }
    const Tensor rest = merged_weight(weight, {parts[0], parts[1], {}}, *job.lora, -job.lora->scale());
    program.output(frozen_input(base), rest, job.partition(base), frozen_input(base));
    apply(devices, program, inputs, state.buffers);
  }
}

void start_adapter(Devices& devices, const Job& job, TrainState& state) {
  if (job.lora->dora) start_magnitudes(devices, job, state);
  if (!job.pissa) return;
  start_pissa(devices, job, state);
  subtract_start(devices, job, state);
}

}  // namespace fettle
