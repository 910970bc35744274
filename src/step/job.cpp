#include "step/job.h"

#include <algorithm>
#include <numeric>

#include "run/batch_spec.h"
#include "step/preference.h"

namespace fettle {

bool Job::trains_head() const {
  return std::ranges::any_of(trained, [&](const Param& param) { return param.hf_name == model.head().hf_name; });
}

int64_t Job::batch_shards() const {
  return fettle::batch_shards(sharding.mesh());
}

int64_t Job::rows_per_micro_batch() const {
  return sequences_per_micro_batch() / sequences_per_group(row_grouping(recipe.stage));
}

int64_t Job::sequences_per_micro_batch() const {
  return batch_spec(recipe, sharding.mesh(), BatchUse::kTraining).sequences;
}

int64_t Job::row_multiple() const {
  return batch_spec(recipe, sharding.mesh(), BatchUse::kTraining).multiple;
}

int64_t Job::longest_row() const {
  return batch_spec(recipe, sharding.mesh(), BatchUse::kTraining).longest();
}

int64_t Job::count(const std::vector<Param>& params) const {
  int64_t total = 0;
  for (const Param& param : params)
    if (!param.dtype) total += product(param.dims) * static_cast<int64_t>(layers_of(param).size());
  if (&params == &frozen)
    for (const QuantisedWeight& weight : quantised) total += product(weight.base.dims) * weight.base.layer_count();
  return total;
}

std::vector<int64_t> Job::layers_of(const Param& param) const {
  if (lora && !lora->layers.empty() && param.is_lora()) return lora->layers;
  std::vector<int64_t> out(param.layer_count());
  std::iota(out.begin(), out.end(), param.layers.first);
  return out;
}

Partition Job::partition(const Param& param) const {
  return sharding.partition(stacked_axes(param), stacked_shape(param, DType::kF32).dims, param.hf_name);
}

bool Job::has_master(const Param& param) const {
  if (!recipe.offload_optimizer || recipe.offload_param || trained_dtype != DType::kF32 || compute == DType::kF32 ||
      !reference.empty())
    return false;
  return param.trained && param.stacked() && param.role == Role::kLinear;
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

// What a parameter's learning rate is to the recipe's.
double rate_factor(const Job& job, const Param& param) {
  const Recipe& r = job.recipe;
  if (r.loraplus_lr_ratio &&
      (param.role == Role::kLoraB || param.role == Role::kLoraMagnitude || param.is_bias_or_norm()))
    return *r.loraplus_lr_ratio;
  const bool embedding = param.role == Role::kTokenEmbedding || param.role == Role::kHead;
  return r.embedding_lr && embedding ? *r.embedding_lr / r.learning_rate : 1;
}

}  // namespace

OptimWeight optim_weight(const Job& job, const Param& param) {
  return {.shape = stacked_shape(param, job.trained_dtype),
          .axes = stacked_axes(param),
          .stacked = param.stack_dims(),
          .weight_decay = Job::decays(param) ? job.recipe.weight_decay : 0,
          .rate = rate_factor(job, param),
          .columns = param.fused >= 0 && param.fused + 2 == static_cast<int>(param.dims.size()) ? 2 : 1,
          .embedding = param.is_embedding()};
}

std::vector<StateArray> optimizer_state(const Job& job, const Param& param) {
  std::vector<StateArray> out;
  for (StateRow& state : job.optimizer.state(optim_weight(job, param))) {
    const Partition partition = job.sharding.fitting(state.axes, state.shape.dims);
    out.push_back({state.name + "/" + param.stack_name(), std::move(state.shape), std::move(state.axes), partition,
                   job.state_memory()});
  }
  return out;
}

}  // namespace fettle
