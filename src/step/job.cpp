#include "step/job.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/adapter_files.h"
#include "optim/schedule.h"

namespace fettle {
namespace {

LoraOptions lora_options(const Recipe& recipe, const Model& model) {
  LoraOptions options{recipe.lora_rank, recipe.effective_lora_alpha(), recipe.lora_dropout, recipe.use_rslora, {}};
  if (recipe.adapter_name_or_path.empty()) {
    options.modules = lora_modules(model, recipe.lora_target);
    return options;
  }
  if (recipe.adapter_name_or_path.size() > 1)
    throw UserError("adapter_name_or_path: {} adapters given; one can be loaded", recipe.adapter_name_or_path.size());
  const AdapterFolder adapter = read_adapter(recipe.adapter_name_or_path[0]);
  const AdapterConfig& config = adapter.config;
  options.rank = config.r;
  options.alpha = config.lora_alpha;
  options.rslora = config.use_rslora;
  // The tensors say exactly which modules have a pair; every layer must have the same ones.
  for (const std::string& linear : model.family->linears) {
    int64_t layers = 0;
    for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) {
      std::string module = model.family->layer_prefix + linear;
      module.replace(module.find("{}"), 2, std::to_string(layer));
      if (adapter.find(module, AdapterPart::kLoraA) == nullptr) continue;
      ++layers;
      if (config.rank(module) != config.r || config.alpha(module) != config.lora_alpha)
        throw UserError("{}: ranks or alphas that differ by module are not supported (here: {})",
                        adapter.file.path().string(), module);
    }
    if (layers == model.config.num_hidden_layers)
      options.modules.push_back(linear);
    else if (layers > 0)
      throw UserError("{}: {} has a pair in {} of {} layers; adapters on some layers only are not supported",
                      adapter.file.path().string(), linear, layers, model.config.num_hidden_layers);
  }
  const size_t known = options.modules.size() * static_cast<size_t>(model.config.num_hidden_layers) * 2;
  if (known != adapter.tensors.size())
    throw UserError(
        "{}: {} tensors, of which {} belong to linear layers of this {} model; is it another model's adapter?",
        adapter.file.path().string(), adapter.tensors.size(), known, model.family->model_type);
  return options;
}

}  // namespace

int64_t Job::batch_shards() const {
  return sharding.mesh().size_of("dp") * sharding.mesh().size_of("fsdp");
}

int64_t Job::rows_per_micro_batch() const {
  return recipe.per_device_train_batch_size * batch_shards();
}

int64_t Job::row_multiple() const {
  return std::lcm<int64_t>(8, sharding.mesh().size_of("sp"));
}

int64_t Job::longest_row() const {
  return (recipe.cutoff_len + row_multiple() - 1) / row_multiple() * row_multiple();
}

int64_t Job::count(const std::vector<WeightRow>& rows) const {
  int64_t total = 0;
  for (const WeightRow& row : rows) total += stacked_shape(row, model.config, DType::kF32).elements();
  return total;
}

Partition Job::partition(const WeightRow& row) const {
  return sharding.partition(stacked_axes(row), stacked_shape(row, model.config, DType::kF32).dims, row.name);
}

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
    job.lora = lora_options(recipe, job.model);
    job.frozen = job.model.weights;
    job.trained = lora_rows(job.model, *job.lora);
  } else {
    (inference ? job.frozen : job.trained) = job.model.weights;
  }
  const bool low = recipe.bf16 || recipe.pure_bf16 || recipe.fp16;
  job.compute = recipe.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
  job.frozen_dtype = low ? job.compute : job.model.config.dtype;
  job.trained_dtype = recipe.pure_bf16 ? DType::kBF16 : DType::kF32;
  if (lora && recipe.lora_dtype != "float32") job.trained_dtype = dtype_from_hf(recipe.lora_dtype);

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

std::string frozen_input(const std::string& row) {
  return "frozen/" + row;
}
std::string trained_input(const std::string& row) {
  return "trained/" + row;
}

namespace {

// What a row's learning rate is to the recipe's.
double rate_factor(const Job& job, const WeightRow& row) {
  const Recipe& r = job.recipe;
  if (r.loraplus_lr_ratio && (row.name.ends_with(".lora_B.weight") || row.dims.size() == 1))
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
    out.push_back({state.name + "/" + row.name, std::move(state.shape), std::move(state.axes), partition});
  }
  return out;
}

}  // namespace fettle
