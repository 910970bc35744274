#include "run/run.h"

#include <algorithm>

#include "adapters/lora.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "models/layer_groups.h"
#include "run/batch_spec.h"

namespace fettle {

std::vector<std::string> AdapterSpec::folders() const {
  std::vector<std::string> out = merged;
  if (!folder.empty()) out.push_back(folder);
  return out;
}

void Remarks::print() const {
  for (const std::string& text : warnings) warn("{}", text);
  for (const std::string& text : notes) info("{}", text);
}

std::string_view Run::method() const {
  if (adapter.lora) return "lora";
  const bool full = std::ranges::all_of(frozen, [](const Param& param) { return param.role == Role::kBuffer; });
  return full ? "full" : "freeze";
}

bool Run::trains_head() const {
  return std::ranges::any_of(trained, [&](const Param& param) { return param.hf_name == model.head().hf_name; });
}

int64_t Run::batch_shards() const {
  return fettle::batch_shards(sharding.mesh());
}

int64_t Run::rows_per_micro_batch() const {
  return batch.sequences / stage->sequences_per_row();
}

int64_t Run::rows_per_step() const {
  return rows_per_micro_batch() * batch.micro_batches;
}

int64_t Run::count(const std::vector<Param>& params) const {
  int64_t total = 0;
  for (const Param& param : params)
    if (param.role != Role::kQuantisedParts)
      total += product(param.dims) * static_cast<int64_t>(layers_of(param).size());
  if (&params == &frozen)
    for (const QuantisedWeight& weight : quantised) total += product(weight.base.dims) * weight.base.layer_count();
  return total;
}

bool Run::moves(const Param& param) const {
  return router_bias_rate > 0 && param.hf_name == model.family->layer_prefix + model.config.routing.correction;
}

std::vector<int64_t> Run::layers_of(const Param& param) const {
  if (!param.stacked()) return {0};
  std::vector<int64_t> out = param.layers.numbers;
  if (adapter.lora && !adapter.lora->layers.empty() && param.is_lora())
    std::erase_if(out, [&layers = adapter.lora->layers](int64_t layer) {
      return std::ranges::find(layers, layer) == layers.end();
    });
  return out;
}

Partition Run::partition(const Param& param) const {
  return sharding.partition(stacked_axes(param), stacked_shape(param, DType::kF32).dims, param.hf_name);
}

bool Run::trained_above_compute(const Param& param) const {
  return precision.trained == DType::kF32 && precision.compute != DType::kF32 && param.trained && param.stacked() &&
         (param.role == Role::kLinear || param.has_experts());
}

bool Run::has_master(const Param& param) const {
  return offload.optimizer && !offload.param && reference.params.empty() && param.role == Role::kLinear &&
         trained_above_compute(param);
}

bool Run::on_disk(const Param& param) const {
  return offload.dir_weights && trained_above_compute(param);
}

DType Run::dtype_of(const Param& param, DType usual) const {
  return on_disk(param) ? precision.compute : param.dtype.value_or(usual);
}

bool Run::trains_layers_on_host() const {
  return std::ranges::any_of(trained, [&](const Param& param) {
    return param.stacked() && param.memory == Memory::kHost && !has_master(param);
  });
}

Run with_remat(Run run, const RematPolicy& policy) {
  run.remat = policy;
  run.remat_auto = false;
  return run;
}

Run with_merged(Run run, int64_t times) {
  BatchSpec& batch = run.batch;
  internal_check(times >= 1 && batch.micro_batches % times == 0, "{} micro-batches cannot be merged {} at a time",
                 batch.micro_batches, times);
  batch.micro_batches /= times;
  batch.sequences *= times;
  run.merged_micro_batches *= times;
  // One micro-batch needs no loop that sums gradients, unless its rows should be free to move to further micro-batches.
  if (times > 1 && batch.micro_batches == 1 && !sums_are_cheap(run.adapter.lora.has_value(), run.offload.param))
    batch.lines = Lines::kShared;
  return run;
}

Run with_unsplit_rows(Run run) {
  run.sharding = run.sharding.for_one_row();
  return run;
}

std::string offload_param_refusal(const Run& run) {
  const std::vector<LayerGroup> groups = groups_of(run.model);
  if (std::ranges::any_of(groups, [](const LayerGroup& group) { return group.period > 1; }))
    return fmt::format(
        "offload_param is not implemented for {}, whose layers alternate between several kinds; use "
        "offload_optimizer, or more devices",
        run.model.family->model_type);
  // The programs that make these new adapters read the weights of all layers on the device.
  const bool dora = run.adapter.lora && run.adapter.lora->dora && run.adapter.folder.empty();
  if (run.adapter.pissa || dora)
    return fmt::format("offload_param: {} needs the weights of all layers on the device; remove one of the two",
                       run.adapter.pissa ? "pissa_init" : "a new adapter with use_dora");
  return "";
}

std::string frozen_input(const Param& param) {
  return "frozen/" + param.stack_name();
}
std::string trained_input(const Param& param) {
  return "trained/" + param.stack_name();
}
std::string start_array(const Param& param) {
  return "start/" + param.stack_name();
}
std::string reference_input(const Param& param) {
  return "reference/" + param.stack_name();
}

namespace {

// Returns a parameter's learning rate divided by the run's learning rate.
double rate_factor(const Run& run, const Param& param) {
  const UpdateSpec& update = run.update;
  if (update.loraplus_lr_ratio &&
      (param.role == Role::kLoraB || param.role == Role::kLoraMagnitude || param.is_bias_or_norm()))
    return *update.loraplus_lr_ratio;
  const bool embedding = param.role == Role::kTokenEmbedding || param.role == Role::kHead;
  return update.embedding_lr && embedding ? *update.embedding_lr / update.learning_rate : 1;
}

bool is_low_rank(const Run& run, const Param& param) {
  if (param.role != Role::kLinear || !param.stacked()) return false;
  return std::ranges::any_of(run.update.apollo_target, [&](const std::string& target) {
    return target == "all" || target == "all-linear" || param.hf_name.find(target) != std::string::npos;
  });
}

uint32_t random_key(const Run& run, const Param& param) {
  return fnv1a(param.hf_name) ^ static_cast<uint32_t>(run.seed * 0x9e3779b9);
}

}  // namespace

OptimWeight optim_weight(const Run& run, const Param& param) {
  // A short convolution [channels, 1, width] has no rows and columns: all its dims count as those of a vector. The
  // checkpoint may have the weights of all experts in one tensor: each of them is a matrix.
  const bool in_parts = param.fused >= 0 && param.fused + 2 == static_cast<int>(param.dims.size());
  const auto columns = param.role == Role::kCoefficients ? static_cast<int64_t>(param.dims.size()) : in_parts ? 2 : 1;
  return {.shape = stacked_shape(param, param.dtype.value_or(run.precision.trained)),
          .axes = stacked_axes(param),
          .stacked = param.stacked() && param.has_experts() ? 2 : param.stack_dims(),
          // As in Transformers, weight decay does not apply to biases and norms.
          .weight_decay = param.is_bias_or_norm() ? 0 : run.update.weight_decay,
          .rate = rate_factor(run, param),
          .columns = columns,
          .embedding = param.is_embedding(),
          .bias = param.is_bias(),
          .head_rows = param.head_rows,
          .low_rank = is_low_rank(run, param),
          .key = random_key(run, param)};
}

std::vector<StateArray> optimizer_state(const Run& run, const Param& param) {
  std::vector<StateArray> out;
  for (OptimState& state : run.optimizer.state(optim_weight(run, param))) {
    const Partition partition = run.sharding.fitting(state.axes, state.shape.dims);
    out.push_back({state.name + "/" + param.stack_name(), std::move(state.shape), std::move(state.axes), partition,
                   run.state_memory(), run.state_on_disk()});
  }
  return out;
}

StateArray trained_array(const Run& run, const Param& param) {
  return {trained_input(param),
          stacked_shape(param, param.dtype.value_or(run.precision.trained)),
          stacked_axes(param),
          run.partition(param),
          run.on_disk(param) ? Memory::kDevice : param.memory,
          run.on_disk(param)};
}

}  // namespace fettle
