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
#include "runtime/vendors/vendor.h"
#include "step/preference.h"
#include "step/state/adapter_arrays.h"
#include "step/state/quantised_rows.h"

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

// Pairs of experts are plain LoRA: PEFT refuses the rest too, or leaves it out.
void check_expert_pairs(const Recipe& recipe) {
  const std::pair<bool, const char*> others[] = {{recipe.lora_dropout != 0, "lora_dropout"},
                                                 {recipe.use_dora, "use_dora"},
                                                 {recipe.pissa_init, "pissa_init"},
                                                 {!recipe.layers_to_transform.empty(), "layers_to_transform"}};
  for (const auto& [asked, key] : others)
    if (asked)
      throw UserError("{}: {} does not go with target_parameters: pairs of experts have none; remove one of the two",
                      recipe.where(key), key);
}

// Those of the adapter that is trained on or applied, else the recipe's.
LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter) {
  // The head is trained whole, and saved with the pairs.
  auto with_head = [&](LoraOptions options) {
    if (model.classifies())
      for (const std::string& module : model.family->classifier.saved)
        if (std::ranges::find(options.saved, module) == options.saved.end()) options.saved.push_back(module);
    return options;
  };
  if (!adapter.empty()) {
    LoraOptions options = adapter_options(open_adapter(adapter), model);
    options.dropout = recipe.lora_dropout;
    if (!options.parameters.empty()) check_expert_pairs(recipe);
    return with_head(options);
  }
  LoraOptions options{.rank = recipe.lora_rank,
                      .alpha = recipe.effective_lora_alpha(),
                      .dropout = recipe.lora_dropout,
                      .rslora = recipe.use_rslora};
  options.modules = lora_modules(model, recipe.lora_target);
  if (!recipe.target_parameters.empty()) {
    options.parameters = expert_parameters(model, recipe.target_parameters);
    check_expert_pairs(recipe);
  }
  options.fan_in_fan_out = model.family->fan_in_fan_out;
  options.dora = recipe.use_dora;
  options.layers = layer_numbers(recipe, model);
  options.saved = recipe.additional_target;
  return with_head(options);
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

namespace {

// What a program of its own makes of whole stacks at the start does not go through them by layer.
void check_offload(const Job& job) {
  if (!job.recipe.offload_param) return;
  auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw UserError("{}: offload_param: {} needs whole weights on the device; {}", job.recipe.where("offload_param"),
                    what, remedy);
  };
  if (job.pissa) refuse("pissa_init", "leave one of the two out");
  if (!job.merged.empty())
    refuse("merging an adapter before the start", "merge it with `fettle export` first, or leave offload_param out");
  if (job.lora && job.lora->dora && job.adapter.empty()) refuse("the start of use_dora", "leave one of the two out");
}

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

// A head with other labels would have to be thrown away, which nobody asked for.
void check_labels(const Recipe& recipe, const nlohmann::json& config, const std::string& file) {
  if (const Family& family = family_of(config, file); recipe.stage == "rm" && family.encoder)
    throw UserError("{}: stage: rm scores replies of a model that writes; {} is an encoder: set stage: cls",
                    recipe.where("stage"), family.model_type);
  if (const int64_t stored = labels_of(config); recipe.stage == "rm" && !recipe.train_from_scratch && stored > 1)
    throw UserError(
        "{}: the model is a classifier of {} labels, stage: rm wants one score; take the model that it was made of",
        file, stored);
}

// The same names in another order would say one label and mean another.
void check_label_order(const Recipe& recipe, const nlohmann::json& config, const std::string& file) {
  if (recipe.stage != "cls" || recipe.train_from_scratch || labels_of(config) == 0 || !config.contains("id2label"))
    return;
  std::vector<std::string> stored, wanted = recipe.id2label;
  for (int64_t i = 0; i < labels_of(config); ++i) stored.push_back(config["id2label"].value(std::to_string(i), ""));
  if (stored == wanted || !std::ranges::is_permutation(stored, wanted)) return;
  throw UserError("{}: id2label is [{}], but {} has them as [{}], in the order of its outputs; leave id2label out",
                  recipe.where("id2label"), fmt::join(wanted, ", "), file, fmt::join(stored, ", "));
}

void check_float8(const Job& job) {
  const std::string where = job.recipe.where("fp8");
  if (job.compute != DType::kBF16)
    throw UserError("{}: fp8 goes with compute in bfloat16, found {}; set bf16: true, or remove fp8", where,
                    hf_name(job.compute));
  if (!job.quantised.empty())
    throw UserError(
        "{}: fp8 would round weights a second time that are held as {}; remove fp8, or take the original weights",
        where, job.quantised[0].format.name());
}

}  // namespace

int64_t num_labels_of(const Recipe& recipe) {
  if (recipe.stage == "rm") return 1;
  if (recipe.stage != "cls") return 0;
  if (!recipe.num_labels)
    throw UserError("{}: num_labels is missing: the rows tell it when there is a dataset, or set it",
                    recipe.where("stage"));
  return *recipe.num_labels;
}

void use_float8_of(Job& job, const std::string& capability, const std::string& title) {
  if (!job.recipe.fp8) return;
  job.float8 = float8_of(capability);
  if (!job.float8)
    throw UserError("{}: fp8: {} ({}) multiplies no 8-bit floats; remove the key", job.recipe.where("fp8"), title,
                    capability);
}

Job make_job(const Recipe& recipe, const nlohmann::json& config, const std::string& file, int64_t devices,
             Purpose purpose) {
  check_schedule_type(recipe.lr_scheduler_type);
  check_labels(recipe, config, file);
  check_label_order(recipe, config, file);
  Job job{.recipe = recipe,
          .model = make_model(config, file, num_labels_of(recipe)),
          .lora = {},
          .frozen = {},
          .trained = {},
          .sharding = ShardingRules(make_mesh(recipe.mesh, devices), recipe.sharding),
          .optimizer = make_optimizer(recipe)};
  const bool inference = purpose == Purpose::kInference;
  if (job.model.classifies()) job.model.config.router_aux_loss_coef = 0;  // as Transformers has it
  if (recipe.moe_aux_loss_coef) {
    if (job.model.config.num_experts == 0)
      throw UserError("{}: moe_aux_loss_coef: {} has no experts to balance; leave it out",
                      recipe.where("moe_aux_loss_coef"), job.model.family->model_type);
    job.model.config.router_aux_loss_coef = *recipe.moe_aux_loss_coef;
  }
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
    for (const WeightRow& row : job.frozen)
      if (row.head) job.trained.push_back(row);
    std::erase_if(job.frozen, [](const WeightRow& row) { return row.head; });
  } else {
    (inference ? job.frozen : job.trained) = job.model.weights;
  }
  check_rates(job);
  check_offload(job);
  quantise_frozen(job, file);
  const bool low = recipe.bf16 || recipe.pure_bf16 || recipe.fp16;
  job.compute = recipe.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
  job.frozen_dtype = low ? job.compute : job.model.config.dtype;
  job.trained_dtype = recipe.pure_bf16 ? DType::kBF16 : DType::kF32;
  if (!inference && recipe.fp8) check_float8(job);
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
    out.push_back({state.name + "/" + stack_name(row), std::move(state.shape), std::move(state.axes), partition,
                   job.state_memory()});
  }
  return out;
}

}  // namespace fettle
