#include "step/state/train_state.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/convert.h"
#include "checkpoint/load.h"
#include "checkpoint/peft/load_merged.h"
#include "checkpoint/quantised/load_quantised.h"
#include "optim/loss_scale.h"
#include "programs/layouts.h"
#include "step/state/adapter_arrays.h"
#include "step/state/load_meter.h"
#include "step/state/side_adapter_arrays.h"

namespace fettle {
namespace {

Layout param_layout(const Run& run, const Param& param) {
  return layout_of(run.partition(param), stacked_shape(param, DType::kF32).dims, run.sharding.mesh());
}

// Provides the base weights, read from the model folder or initialised at random, with adapters merged into them.
class BaseWeights {
 public:
  BaseWeights(Devices& devices, const Run& run, const ModelRepository& repository)
      : devices_(devices),
        run_(run),
        repository_(repository),
        meter_(repository.total_bytes()),
        merge_(run.model, adapters(run)) {
    if (run.offload.param || run.offload.optimizer) devices.require_host_memory();
    if (!run.from_scratch) check_weights(repository, run.model);
  }
  // Loads one parameter of the base, with adapters merged into it, in the dtype Run::dtype_of(param, otherwise).
  DeviceBuffer load(const Param& param, DType otherwise, bool metered = true) {
    const DType dtype = run_.dtype_of(param, otherwise);
    const Layout layout = param_layout(run_, param);
    const bool made = param.of_classifier() && !has(param.hf_name);
    if (made && !run_.from_scratch)
      info("the model folder has no tensor {}, so this tensor starts with random values", param.hf_name);
    if (made || run_.from_scratch)
      return random_param(devices_.client(), param, run_.model.config, dtype, layout, run_.seed,
                          memory_kind(param.memory));
    const LoadProgress progress = [&](int64_t bytes) { meter_.add(bytes); };
    return load_merged(
        devices_.client(), param, dtype, layout, merge_, [&](const std::string& name) { return find(name); },
        metered ? progress : LoadProgress{}, memory_kind(param.memory));
  }
  // Writes a trained weight's f32 values to the disk, and stores a 16-bit copy in `state`.
  void on_disk_into(const Param& param, TrainState& state) {
    const FillBox values = run_.from_scratch
                               ? random_values(param, run_.model.config, run_.precision.trained, run_.seed)
                               : param_values(
                                     param, run_.precision.trained, [&](const std::string& name) { return find(name); },
                                     [&](int64_t bytes) { meter_.add(bytes); });
    state.disk->write(trained_input(param), values);
    state.buffers.emplace(trained_input(param), load(param, run_.precision.trained, false));
  }
  // Loads the frozen weights that `state` does not have yet.
  void frozen_into(TrainState& state) {
    for (const Param& one : run_.frozen)
      if (one.role != Role::kQuantisedParts && !state.buffers.contains(frozen_input(one)))
        state.buffers.emplace(frozen_input(one), load(one, run_.precision.frozen));
    for (const QuantisedWeight& weight : run_.quantised) quantised_into(weight, state);
  }
  // Loads the reference model into `state`, from its own folder (ReferenceSpec::folder). Without such a folder, the
  // reference model is a copy of the base, or of the adapter with which the run starts.
  void reference_into(TrainState& state) {
    if (run_.reference.params.empty()) return;
    const bool own = run_.reference.folder.empty();
    std::optional<ModelRepository> other;
    if (!own) try {
        other = ModelRepository::open(run_.reference.folder);
        check_settings(make_model(other->config(), run_.reference.folder).config);
        check_weights(*other, run_.model);
      } catch (const UserError& error) {
        throw UserError("{}: ref_model must have the same architecture, sizes and settings as the trained model: {}",
                        run_.places.of("ref_model"), error.what());
      }
    std::optional<AdapterFolder> adapter;
    if (run_.reference.adapted) adapter = open_adapter(run_.adapter.folder);
    for (const Param& one : run_.reference.params)
      state.buffers.emplace(
          reference_input(one),
          adapter ? load_from_adapter(devices_, run_, one, run_.precision.trained, *adapter)
          : other ? load_param(
                        devices_.client(), one, one.dtype.value_or(run_.reference_dtype()), param_layout(run_, one),
                        [&](const std::string& name) { return other->find(name); }, {}, memory_kind(one.memory))
                  : load(one, run_.reference_dtype(), false));
  }
  void finish() { meter_.finish(); }

 private:
  // Throws UserError if the reference model computes differently: the step computes it with the trained model's
  // settings. The recipe's rope_scaling is for both models.
  void check_settings(ModelConfig reference) const {
    const RopeParameters& rope = run_.model.config.rope;
    if (run_.places.has("rope_scaling") && reference.rope.rope_theta == rope.rope_theta) reference.rope = rope;
    const std::vector<std::string> differ = differing_settings(run_.model.config, reference);
    if (!differ.empty()) throw UserError("its config.json has other values of {}", fmt::join(differ, ", "));
  }
  static std::vector<AdapterFolder> adapters(const Run& run) {
    std::vector<AdapterFolder> out;
    for (const std::string& folder : run.adapter.merged) out.push_back(open_adapter(folder));
    return out;
  }
  void quantised_into(const QuantisedWeight& weight, TrainState& state) {
    std::vector<Layout> layouts;
    for (const Param& part : weight.parts) layouts.push_back(param_layout(run_, part));
    std::vector<DeviceBuffer> parts = load_quantised(
        devices_.client(), weight, run_.model.config, layouts, [&](const std::string& name) { return find(name); },
        [&](int64_t bytes) { meter_.add(bytes); }, memory_kind(weight.base.memory));
    for (size_t i = 0; i < parts.size(); ++i) state.buffers.emplace(frozen_input(weight.parts[i]), std::move(parts[i]));
  }
  bool has(const std::string& name) const { return merge_.saved(name) || repository_.contains(name); }
  StoredTensor find(const std::string& name) const {
    const std::optional<StoredTensor> saved = merge_.saved(name);
    return saved ? *saved : repository_.find(name);
  }

  Devices& devices_;
  const Run& run_;
  const ModelRepository& repository_;
  LoadMeter meter_;
  AdapterMerge merge_;
};

// Returns a 16-bit copy of a trained weight, whose f32 values are in the checkpoint.
DeviceBuffer copy_of(Devices& devices, const Run& run, const Param& param, StateReader& checkpoint) {
  const std::string name = trained_input(param);
  const FillBox read = [&](const Box& box, std::byte* out) {
    thread_local std::vector<std::byte> values;
    values.resize(static_cast<size_t>(box.elements() * byte_size(run.precision.trained)));
    checkpoint.read_slice(name, box, values.data());
    convert_elements(values.data(), run.precision.trained, out, run.precision.compute, box.elements());
  };
  DeviceBuffer out = fill_in_pieces(devices.client(), stacked_shape(param, run.precision.compute),
                                    param_layout(run, param), read, memory_kind(param.memory));
  checkpoint.release(name);
  return out;
}

}  // namespace

Bindings TrainState::bindings() {
  Bindings out;
  for (auto& [name, buffer] : buffers) out[name] = &buffer;
  return out;
}

std::vector<StateArray> trained_arrays(const Run& run) {
  std::vector<StateArray> arrays;
  for (const Param& param : run.trained) {
    arrays.push_back(trained_array(run, param));
    for (StateArray& array : optimizer_state(run, param)) arrays.push_back(std::move(array));
    if (run.adapter.pissa && param.is_lora())
      arrays.push_back(
          {start_array(param), stacked_shape(param, run.precision.trained), stacked_axes(param), run.partition(param)});
  }
  for (const Param& param : run.frozen)
    if (run.keeps(param))
      arrays.push_back({frozen_input(param), stacked_shape(param, param.dtype.value_or(run.precision.frozen)),
                        stacked_axes(param), run.partition(param), param.memory});
  if (run.scales_loss())
    arrays.push_back({kLossScale, {DType::kF32, {2}}, {""}, Partition{std::vector<std::vector<std::string>>(1)}});
  return arrays;
}

TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, bool optimizer) {
  TrainState state;
  if (optimizer && run.state_on_disk()) state.disk = std::make_unique<DiskState>(devices, run);
  const Client& client = devices.client();
  BaseWeights base(devices, run, repository);
  std::optional<AdapterFolder> adapter;
  if (!run.adapter.folder.empty()) adapter = open_adapter(run.adapter.folder);
  for (const Param& param : run.frozen)
    if (param.of_adapter)
      state.buffers.emplace(
          frozen_input(param),
          load_from_adapter(devices, run, param, param.dtype.value_or(run.precision.frozen), *adapter));
  base.frozen_into(state);
  base.reference_into(state);
  std::vector<AdapterFolder> side_by_side;
  for (const SideAdapter& one : run.adapter.side_by_side) side_by_side.push_back(open_adapter(one.folder));
  for (const Param& param : run.trained) {
    if (state.disk && run.on_disk(param)) {
      base.on_disk_into(param, state);
      continue;
    }
    DeviceBuffer weight;
    // The adapter may belong to a language model and have no classifier head. The head is then loaded like the base.
    const bool given =
        adapter && !(param.of_classifier() && adapter->find(param.hf_name, AdapterPart::kSaved) == nullptr);
    if (!side_by_side.empty())
      weight = load_joined(devices, run, param, side_by_side);
    else if (given)
      weight = load_from_adapter(devices, run, param, param.dtype.value_or(run.precision.trained), *adapter);
    else if (param.is_lora())
      weight = random_param(client, param, run.model.config, run.precision.trained, param_layout(run, param), run.seed,
                            memory_kind(param.memory));
    else
      weight = base.load(param, run.precision.trained);
    if (optimizer && !run.state_on_disk())
      for (const StateArray& array : optimizer_state(run, param)) {
        Layout layout = layout_of(array.partition, array.shape.dims, run.sharding.mesh());
        state.buffers.emplace(array.name,
                              DeviceBuffer::zeros(client, array.shape, std::move(layout), memory_kind(array.memory)));
      }
    state.buffers.emplace(trained_input(param), std::move(weight));
  }
  if (optimizer && run.scales_loss())
    state.buffers.emplace(kLossScale,
                          replicate(devices, HostArray::from<float>({DType::kF32, {2}}, {kFirstLossScale, 0})));
  base.finish();
  if (run.adapter.lora && run.adapter.folder.empty() && side_by_side.empty()) start_adapter(devices, run, state);
  return state;
}

TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, StateReader& checkpoint,
                      const std::vector<StateArray>& arrays) {
  TrainState state;
  state.step = checkpoint.meta().at("step").get<int64_t>();
  if (run.state_on_disk()) state.disk = std::make_unique<DiskState>(devices, run);
  for (const StateArray& array : arrays) {
    internal_check(checkpoint.shape(array.name) == array.shape,
                   "load_state: '{}' must be {}, but the checkpoint has {}", array.name, array.shape.to_string(),
                   checkpoint.shape(array.name).to_string());
    const Layout layout = layout_of(array.partition, array.shape.dims, run.sharding.mesh());
    for (int i = 0; i < layout.count(); ++i)
      if (devices.client().is_local(layout.ordinal(i)))
        checkpoint.verify(array.name, layout.boxes[static_cast<size_t>(i)]);
    auto read = [&](const Box& box, std::byte* out) {
      checkpoint.read_slice(array.name, box, out);
      count_progress();
    };
    if (array.on_disk)
      state.disk->write(array.name, read);
    else
      state.buffers.emplace(array.name,
                            fill_in_pieces(devices.client(), array.shape, layout, read, memory_kind(array.memory)));
    checkpoint.release(array.name);
  }
  for (const Param& param : run.trained)
    if (run.on_disk(param)) state.buffers.emplace(trained_input(param), copy_of(devices, run, param, checkpoint));
  BaseWeights base(devices, run, repository);
  base.frozen_into(state);
  base.reference_into(state);
  base.finish();
  if (run.adapter.pissa) subtract_start(devices, run, state);
  return state;
}

}  // namespace fettle
