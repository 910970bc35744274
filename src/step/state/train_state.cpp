#include "step/state/train_state.h"

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/load.h"
#include "checkpoint/load_quantised.h"
#include "data/batches/order.h"
#include "optim/loss_scale.h"
#include "programs/signature.h"
#include "step/preference.h"
#include "step/state/adapter_arrays.h"
#include "step/state/batch_arrays.h"
#include "step/state/load_meter.h"
#include "step/state/merged_adapters.h"

namespace fettle {
namespace {

Layout param_layout(const Job& job, const Param& param) {
  return layout_of(job.partition(param), stacked_shape(param, DType::kF32).dims, job.sharding.mesh());
}

// The base's weights, read or made at random, with the adapters that are merged into them.
class BaseWeights {
 public:
  BaseWeights(Devices& devices, const Job& job, const ModelRepository& repository)
      : devices_(devices), job_(job), repository_(repository), meter_(repository.total_bytes()), merged_(job) {
    if (job.recipe.offload_param || job.recipe.offload_optimizer) devices.require_host_memory();
    if (!job.recipe.train_from_scratch) check_weights(repository, job.model);
  }
  // One of the base's, whatever it is for, with what is merged into it.
  DeviceBuffer load(const Param& param, DType dtype, bool metered = true) {
    const Layout layout = param_layout(job_, param);
    const bool made = param.of_classifier() && !has(param.hf_name);
    if (made && !job_.recipe.train_from_scratch) info("{} is not in the checkpoint: it starts afresh", param.hf_name);
    if (made || job_.recipe.train_from_scratch)
      return random_param(devices_.client(), param, job_.model.config, dtype, layout,
                          static_cast<uint64_t>(job_.recipe.seed), memory_kind(param.memory));
    const LoadProgress progress = [&](int64_t bytes) { meter_.add(bytes); };
    DeviceBuffer weight = load_param(
        devices_.client(), param, dtype, layout, [&](const std::string& name) { return find(name); },
        metered ? progress : LoadProgress{}, memory_kind(param.memory));
    return merged_.merged(devices_, param, std::move(weight));
  }
  void frozen_into(TrainState& state) {
    for (const Param& one : job_.frozen)
      if (!one.dtype) state.buffers.emplace(frozen_input(one), load(one, job_.frozen_dtype));
    for (const QuantisedWeight& weight : job_.quantised) quantised_into(weight, state);
  }
  // The reference model's part is no other than the base's, or than the adapter's as it was given.
  void reference_into(TrainState& state) {
    if (job_.reference.empty()) return;
    const bool own = job_.recipe.ref_model.empty();
    std::optional<ModelRepository> other;
    if (!own) try {
        other = ModelRepository::open(job_.recipe.ref_model);
        check_weights(*other, job_.model);
      } catch (const UserError& error) {
        throw UserError("{}: ref_model must be a model of the same shape as the one that is trained: {}",
                        job_.recipe.where("ref_model"), error.what());
      }
    std::optional<AdapterFolder> adapter;
    if (own && !job_.adapter.empty()) adapter = open_adapter(job_.adapter);
    for (const Param& one : job_.reference)
      state.buffers.emplace(
          reference_input(one),
          adapter ? load_trained(devices_, job_, one, *adapter)
          : other ? load_param(
                        devices_.client(), one, job_.reference_dtype(), param_layout(job_, one),
                        [&](const std::string& name) { return other->find(name); }, {}, memory_kind(one.memory))
                  : load(one, job_.reference_dtype(), false));
  }
  void finish() { meter_.finish(); }

 private:
  void quantised_into(const QuantisedWeight& weight, TrainState& state) {
    std::vector<Layout> layouts;
    for (const Param& part : weight.parts) layouts.push_back(param_layout(job_, part));
    std::vector<DeviceBuffer> parts = load_quantised(
        devices_.client(), weight, job_.model.config, layouts, [&](const std::string& name) { return find(name); },
        [&](int64_t bytes) { meter_.add(bytes); }, memory_kind(weight.base.memory));
    for (size_t i = 0; i < parts.size(); ++i) state.buffers.emplace(frozen_input(weight.parts[i]), std::move(parts[i]));
  }
  bool has(const std::string& name) const { return merged_.saved(name) || repository_.contains(name); }
  StoredTensor find(const std::string& name) const {
    const std::optional<StoredTensor> saved = merged_.saved(name);
    return saved ? *saved : repository_.find(name);
  }

  Devices& devices_;
  const Job& job_;
  const ModelRepository& repository_;
  LoadMeter meter_;
  MergedAdapters merged_;
};

}  // namespace

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

Bindings TrainState::bindings() {
  Bindings out;
  for (auto& [name, buffer] : buffers) out[name] = &buffer;
  return out;
}

std::vector<StateArray> trained_arrays(const Job& job) {
  std::vector<StateArray> arrays;
  for (const Param& param : job.trained) {
    const Shape shape = stacked_shape(param, job.trained_dtype);
    arrays.push_back({trained_input(param), shape, stacked_axes(param), job.partition(param), param.memory});
    for (StateArray& array : optimizer_state(job, param)) arrays.push_back(std::move(array));
    if (job.pissa && param.is_lora())
      arrays.push_back({start_array(param), shape, stacked_axes(param), job.partition(param)});
  }
  if (job.scales_loss())
    arrays.push_back({kLossScale, {DType::kF32, {2}}, {""}, Partition{std::vector<std::vector<std::string>>(1)}});
  return arrays;
}

TrainState load_state(Devices& devices, const Job& job, const ModelRepository& repository, bool optimizer) {
  TrainState state;
  const Client& client = devices.client();
  BaseWeights base(devices, job, repository);
  base.frozen_into(state);
  base.reference_into(state);
  std::optional<AdapterFolder> adapter;
  if (!job.adapter.empty()) adapter = open_adapter(job.adapter);
  for (const Param& param : job.trained) {
    DeviceBuffer weight;
    // The head is not in an adapter that was trained to write.
    const bool given =
        adapter && !(param.of_classifier() && adapter->find(param.hf_name, AdapterPart::kSaved) == nullptr);
    if (given)
      weight = load_trained(devices, job, param, *adapter);
    else if (param.is_lora())
      weight = random_param(client, param, job.model.config, job.trained_dtype, param_layout(job, param),
                            static_cast<uint64_t>(job.recipe.seed), memory_kind(param.memory));
    else
      weight = base.load(param, job.trained_dtype);
    if (optimizer)
      for (const StateArray& array : optimizer_state(job, param)) {
        Layout layout = layout_of(array.partition, array.shape.dims, job.sharding.mesh());
        state.buffers.emplace(array.name,
                              DeviceBuffer::zeros(client, array.shape, std::move(layout), memory_kind(array.memory)));
      }
    state.buffers.emplace(trained_input(param), std::move(weight));
  }
  if (optimizer && job.scales_loss())
    state.buffers.emplace(kLossScale,
                          replicate(devices, HostArray::from<float>({DType::kF32, {2}}, {kFirstLossScale, 0})));
  base.finish();
  if (job.lora && job.adapter.empty()) start_adapter(devices, job, state);
  return state;
}

TrainState load_state(Devices& devices, const Job& job, const ModelRepository& repository, StateReader& checkpoint) {
  TrainState state;
  state.step = checkpoint.meta().at("step").get<int64_t>();
  for (const StateArray& array : trained_arrays(job)) {
    internal_check(checkpoint.shape(array.name) == array.shape, "load_state: '{}' is {}, the checkpoint has {}",
                   array.name, array.shape.to_string(), checkpoint.shape(array.name).to_string());
    const Layout layout = layout_of(array.partition, array.shape.dims, job.sharding.mesh());
    for (const Box& box : layout.parts()) checkpoint.verify(array.name, box);
    auto read = [&](const Box& box, std::byte* out) { checkpoint.read_slice(array.name, box, out); };
    state.buffers.emplace(array.name,
                          fill_in_pieces(devices.client(), array.shape, layout, read, memory_kind(array.memory)));
    checkpoint.release(array.name);
  }
  BaseWeights base(devices, job, repository);
  base.frozen_into(state);
  base.reference_into(state);
  base.finish();
  if (job.pissa) subtract_start(devices, job, state);
  return state;
}

std::map<std::string, DeviceBuffer> upload_batch(const Devices& devices, const Job& job, const Batch& batch,
                                                 bool flat) {
  std::map<std::string, DeviceBuffer> out;
  const Dims& dims = batch.tokens.shape().dims;
  for (const BatchArray& array : batch_arrays(job, flat ? Dims{dims[0] * dims[1]} : Dims{dims[0], dims[1]}, dims[2])) {
    const HostArray& from = batch.*array.from;
    HostArray shaped(array.shape);
    internal_check(from.bytes() == shaped.bytes(), "upload_batch: {} has {}, the program wants {}", array.name,
                   from.shape().to_string(), array.shape.to_string());
    std::memcpy(shaped.data(), from.data(), from.bytes());
    const Partition partition = job.sharding.partition(array.axes, array.shape.dims, "the batch");
    const Layout layout = layout_of(partition, array.shape.dims, job.sharding.mesh());
    out.emplace("batch/" + array.name, DeviceBuffer::upload(devices.client(), shaped, layout));
  }
  return out;
}

StepOutcome run_step(const Devices& devices, const Job& job, const Executable& step, TrainState& state,
                     const Batch& batch, double learning_rate) {
  std::map<std::string, DeviceBuffer> inputs = upload_batch(devices, job, batch, false);
  for (const auto& [name, value] : job.optimizer.scalars(state.step + 1, learning_rate))
    inputs.emplace(name, replicate(devices, static_cast<float>(value)));
  const auto seed =
      static_cast<uint32_t>(mix_bits(static_cast<uint64_t>(job.recipe.seed), static_cast<uint64_t>(state.step)));
  inputs.emplace("seed", replicate(devices, HostArray::from<uint32_t>({DType::kU32, {}}, {seed})));

  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run(step, bindings);
  StepOutcome outcome{outputs.at("loss").download().as<float>()[0], outputs.at("grad_norm").download().as<float>()[0]};
  if (const auto sums = outputs.find("metrics"); sums != outputs.end())
    outcome.metrics = preference_metrics(job.recipe, sums->second.download().as<float>());
  for (auto& [name, buffer] : outputs)
    if (name != "loss" && name != "grad_norm" && name != "metrics") state.buffers.at(name) = std::move(buffer);
  if (outcome.finite()) ++state.step;
  if (job.scales_loss()) {
    outcome.loss_scale = state.buffers.at(kLossScale).download().as<float>()[0];
    outcome.overflowed = !outcome.finite() && std::isfinite(outcome.loss) && outcome.loss_scale >= kSmallestLossScale;
  }
  return outcome;
}

}  // namespace fettle
