#include "step/job.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "adapters/freeze.h"
#include "base/error.h"
#include "base/log.h"
#include "optim/schedule.h"
#include "step/adapter_arrays.h"
#include "step/preference.h"
#include "step/quantised_rows.h"

namespace fettle {
namespace {

std::vector<int64_t> layer_numbers(const Recipe& recipe, const Model& model) {
  std::set<int64_t> layers;
  for (const std::string& text : recipe.layers_to_transform) {
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
    if (error != std::errc() || end != text.data() + text.size() || layer < 0 ||
        layer >= model.config.num_hidden_layers)
      throw UserError("{}: layers_to_transform: '{}' is no layer; there are 0 to {}",
                      recipe.where("layers_to_transform"), text, model.config.num_hidden_layers - 1);
    layers.insert(layer);
  }
  if (static_cast<int64_t>(layers.size()) == model.config.num_hidden_layers) layers.clear();
  return {layers.begin(), layers.end()};
}

// Those of the adapter that is trained on or applied, else the recipe's.
LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter) {
  if (!adapter.empty()) {
    LoraOptions options = adapter_options(open_adapter(adapter), model);
    options.dropout = recipe.lora_dropout;
    return options;
  }
  LoraOptions options{.rank = recipe.lora_rank,
                      .alpha = recipe.effective_lora_alpha(),
                      .dropout = recipe.lora_dropout,
                      .rslora = recipe.use_rslora};
  options.modules = lora_modules(model, recipe.lora_target);
  options.fan_in_fan_out = model.family->fan_in_fan_out;
  options.dora = recipe.use_dora;
  options.layers = layer_numbers(recipe, model);
  options.saved = recipe.additional_target;
  return options;
}

// The rows of the base that LoRA leaves alone are frozen, the others trained beside the pairs.
void divide_for_lora(Job& job) {
  job.trained = lora_rows(job.model, *job.lora);
  const std::vector<WeightRow> saved = saved_rows(job.model, *job.lora);
  for (const WeightRow& row : job.model.weights) {
    const bool trained = std::ranges::find(saved, row.name, &WeightRow::name) != saved.end();
    (trained ? job.trained : job.frozen).push_back(row);
  }
}

// The weights of the named reference model, or what is trained unless it starts as nothing: a new adapter's pairs do.
std::vector<WeightRow> reference_rows(const Job& job) {
  if (!job.recipe.ref_model.empty()) return job.model.weights;
  std::vector<WeightRow> rows = job.trained;
  if (job.lora && job.adapter.empty()) std::erase_if(rows, [](const WeightRow& row) { return is_lora(row); });
  return rows;
}

}  // namespace

bool Job::trains_head() const {
  return std::ranges::find(trained, model.head(), &WeightRow::name) != trained.end();
}

int64_t Job::batch_shards() const {
  return sharding.mesh().size_of("dp") * sharding.mesh().size_of("fsdp");
}

int64_t Job::rows_per_micro_batch() const {
  return recipe.per_device_train_batch_size * batch_shards();
}

int64_t Job::sequences_per_micro_batch() const {
  return rows_per_micro_batch() * sequences_per_row(recipe);
}

int64_t Job::row_multiple() const {
  return std::lcm<int64_t>(8, sharding.mesh().size_of("sp"));
}

int64_t Job::longest_row() const {
  return (recipe.cutoff_len + row_multiple() - 1) / row_multiple() * row_multiple();
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

namespace {

void check_rates(const Job& job) {
  const bool embedding = std::ranges::any_of(job.trained, [&](const WeightRow& row) {
    return row.name == job.model.family->embedding || row.name == job.model.family->head;
  });
  if (job.recipe.embedding_lr && !job.trained.empty() && !embedding)
    throw UserError(
        "{}: embedding_lr: neither the embedding nor the head is trained; name them in additional_target, "
        "or remove the key",
        job.recipe.where("embedding_lr"));
}

}  // namespace

Job make_job(const Recipe& recipe, const nlohmann::json& config, const std::string& file, int64_t devices,
             Purpose purpose) {
  check_schedule_type(recipe.lr_scheduler_type);
  Job job{.recipe = recipe,
          .model = make_model(config, file),
          .lora = {},
          .frozen = {},
          .trained = {},
          .sharding = ShardingRules(make_mesh(recipe.mesh, devices), recipe.sharding),
          .optimizer = make_optimizer(recipe)};
  const bool inference = purpose == Purpose::kInference;
  const bool lora =
      inference ? !recipe.adapter_name_or_path.empty() : recipe.finetuning_type == "lora" && !recipe.train_from_scratch;
  if (!inference && recipe.finetuning_type == "full" && !recipe.adapter_name_or_path.empty())
    throw UserError("finetuning_type: full does not take adapter_name_or_path; export the merged model first");
  if (lora) {
    const std::vector<std::string>& adapters = recipe.adapter_name_or_path;
    const bool fresh = adapters.empty() || (!inference && recipe.create_new_adapter);
    job.merged.assign(adapters.begin(), fresh ? adapters.end() : adapters.end() - 1);
    job.adapter = fresh ? "" : adapters.back();
    job.lora = lora_options(recipe, job.model, job.adapter);
    divide_for_lora(job);
    job.pissa = !inference && fresh && recipe.pissa_init;
  } else if (!inference && recipe.finetuning_type == "freeze") {
    FrozenAndTrained rows = freeze_rows(
        job.model, {recipe.freeze_trainable_layers, recipe.freeze_trainable_modules, recipe.freeze_extra_modules});
    job.frozen = std::move(rows.frozen);
    job.trained = std::move(rows.trained);
  } else {
    (inference ? job.frozen : job.trained) = job.model.weights;
  }
  check_rates(job);
  quantise_frozen(job, file);
  const bool low = recipe.bf16 || recipe.pure_bf16 || recipe.fp16;
  job.compute = recipe.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
  job.frozen_dtype = low ? job.compute : job.model.config.dtype;
  job.trained_dtype = recipe.pure_bf16 ? DType::kBF16 : DType::kF32;
  if (lora && recipe.lora_dtype != "float32") job.trained_dtype = dtype_from_hf(recipe.lora_dtype);

  if (!inference && has_reference(recipe)) job.reference = reference_rows(job);

  const int64_t tp = job.sharding.mesh().size_of("tp");
  const int64_t heads = job.model.config.num_attention_heads, key_heads = job.model.config.num_key_value_heads;
  if (heads % tp != 0) throw UserError("mesh: tp {} does not divide num_attention_heads ({}) of {}", tp, heads, file);
  // More devices than key heads share them: each then holds the heads that its query heads read.
  if (key_heads % tp != 0 && tp % key_heads != 0)
    throw UserError("mesh: tp {} neither divides num_key_value_heads ({}) of {} nor is a multiple of it", tp, key_heads,
                    file);
  if (!inference)
    for (const std::string& key : job.model.config.dropouts)
      warn("{}: '{}' asks for dropout in the base model, which is not applied", file, key);
  return job;
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
          .rate = rate_factor(job, row)};
}

std::vector<StateArray> optimizer_state(const Job& job, const WeightRow& row) {
  std::vector<StateArray> out;
  for (StateRow& state : job.optimizer.state(optim_weight(job, row))) {
    const Partition partition = job.sharding.fitting(state.axes, state.shape.dims);
    out.push_back({state.name + "/" + stack_name(row), std::move(state.shape), std::move(state.axes), partition});
  }
  return out;
}

}  // namespace fettle
