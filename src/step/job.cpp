#include "step/job.h"

#include <algorithm>
#include <numeric>

#include "run/batch_spec.h"
#include "step/preference.h"

namespace fettle {

bool Job::trains_head() const {
  return std::ranges::find(trained, model.head(), &WeightRow::name) != trained.end();
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

int64_t Job::count(const std::vector<WeightRow>& rows) const {
  int64_t total = 0;
  for (const WeightRow& row : rows)
    if (!row.dtype) total += product(row.dims) * static_cast<int64_t>(layers_of(row).size());
  if (&rows == &frozen)
    for (const QuantisedWeight& weight : quantised)
      total += product(weight.base.dims) * layers_held(weight.base, model.config);
  return total;
}

std::vector<int64_t> Job::layers_of(const WeightRow& row) const {
  if (lora && !lora->layers.empty() && is_lora(row)) return lora->layers;
  std::vector<int64_t> out(layers_held(row, model.config));
  std::iota(out.begin(), out.end(), row.first_layer);
  return out;
}

Partition Job::partition(const WeightRow& row) const {
  return sharding.partition(stacked_axes(row), stacked_shape(row, model.config, DType::kF32).dims, row.name);
}

Memory Job::weight_memory(const WeightRow& row) const {
  return (recipe.offload_param && row.stacked()) || has_master(row) ? Memory::kHost : Memory::kDevice;
}

bool Job::has_master(const WeightRow& row) const {
  if (!recipe.offload_optimizer || recipe.offload_param || trained_dtype != DType::kF32 || compute == DType::kF32 ||
      !reference.empty())
    return false;
  const std::string name = stack_name(row);
  return row.stacked() && model.is_linear(row) &&
         std::ranges::any_of(trained, [&](const WeightRow& one) { return stack_name(one) == name; });
}

std::string frozen_input(const WeightRow& row) {
  return "frozen/" + stack_name(row);
}
std::string trained_input(const WeightRow& row) {
  return "trained/" + stack_name(row);
}
std::string start_array(const WeightRow& row) {
  return "start/" + stack_name(row);
}
std::string reference_input(const WeightRow& row) {
  return "reference/" + stack_name(row);
}

namespace {

// What a row's learning rate is to the recipe's.
double rate_factor(const Job& job, const WeightRow& row) {
  const Recipe& r = job.recipe;
  if (r.loraplus_lr_ratio && (row.name.ends_with(".lora_B.weight") || row.stored_dims().size() == 1))
    return *r.loraplus_lr_ratio;
  const bool embedding = row.name == job.model.family->embedding || row.name == job.model.family->head;
  return r.embedding_lr && embedding ? *r.embedding_lr / r.learning_rate : 1;
}

}  // namespace

OptimWeight optim_weight(const Job& job, const WeightRow& row) {
  return {.shape = stacked_shape(row, job.model.config, job.trained_dtype),
          .axes = stacked_axes(row),
          .stacked = row.stack_dims(),
          .weight_decay = Job::decays(row) ? job.recipe.weight_decay : 0,
          .rate = rate_factor(job, row),
          .columns = row.fused >= 0 && row.fused + 2 == static_cast<int>(row.dims.size()) ? 2 : 1,
          .embedding = job.model.is_embedding(row)};
}

std::vector<StateArray> optimizer_state(const Job& job, const WeightRow& row) {
  std::vector<StateArray> out;
  for (StateRow& state : job.optimizer.state(optim_weight(job, row))) {
    const Partition partition = job.sharding.fitting(state.axes, state.shape.dims);
    out.push_back({state.name + "/" + stack_name(row), std::move(state.shape), std::move(state.axes), partition,
                   job.state_memory()});
  }
  return out;
}

}  // namespace fettle
