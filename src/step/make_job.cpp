#include "step/make_job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "adapters/freeze.h"
#include "base/error.h"
#include "base/log.h"
#include "data/classes/taught_labels.h"
#include "optim/schedule.h"
#include "runtime/vendors/vendor.h"
#include "step/preference.h"
#include "step/state/adapter_arrays.h"
#include "step/state/quantised_params.h"

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
    if (recipe.set_at.contains("lora_rank") && recipe.lora_rank != options.rank)
      warn("{}: lora_rank has no effect: the adapter {} has {}", recipe.where("lora_rank"), adapter, options.rank);
    if (recipe.use_dora && !options.dora)
      warn("{}: use_dora has no effect: the adapter {} has none", recipe.where("use_dora"), adapter);
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

// What LoRA leaves alone of the base is frozen, the rest trained beside the pairs.
void divide_for_lora(Job& job) {
  job.trained = lora_params(job.model, *job.lora);
  const std::vector<Param> saved = saved_params(job.model, *job.lora);
  for (const Param& param : job.model.params) {
    const bool trained = std::ranges::find(saved, param.hf_name, &Param::hf_name) != saved.end();
    (trained ? job.trained : job.frozen).push_back(param);
  }
}

// The weights of the named reference model, or what is trained unless it starts as nothing: a new adapter's pairs do.
std::vector<Param> reference_params(const Job& job) {
  if (!job.recipe.ref_model.empty()) return job.model.params;
  std::vector<Param> params = job.trained;
  if (job.lora && job.adapter.empty()) std::erase_if(params, [](const Param& param) { return param.is_lora(); });
  return params;
}

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
  const bool embedding = std::ranges::any_of(job.trained, [&](const Param& param) {
    return param.role == Role::kTokenEmbedding || param.role == Role::kHead;
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
  if (const int64_t stored = read_taught_labels(config, file).count();
      recipe.stage == "rm" && !recipe.train_from_scratch && stored > 1)
    throw UserError(
        "{}: the model is a classifier of {} labels, stage: rm wants one score; take the model that it was made of",
        file, stored);
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

void check_heads(const Job& job, const std::string& file) {
  const int64_t tp = job.sharding.mesh().size_of("tp");
  const int64_t heads = job.model.config.num_attention_heads, key_heads = job.model.config.num_key_value_heads;
  if (heads % tp != 0) throw UserError("mesh: tp {} does not divide num_attention_heads ({}) of {}", tp, heads, file);
  // More devices than key heads share them: each then holds the heads that its query heads read.
  if (key_heads % tp != 0 && tp % key_heads != 0)
    throw UserError("mesh: tp {} neither divides num_key_value_heads ({}) of {} nor is a multiple of it", tp, key_heads,
                    file);
}

// The share of the experts' balance in the loss.
void set_balance(Job& job) {
  if (job.model.classifies()) job.model.config.router_aux_loss_coef = 0;  // as Transformers has it
  if (!job.recipe.moe_aux_loss_coef) return;
  if (job.model.config.num_experts == 0)
    throw UserError("{}: moe_aux_loss_coef: {} has no experts to balance; leave it out",
                    job.recipe.where("moe_aux_loss_coef"), job.model.family->model_type);
  job.model.config.router_aux_loss_coef = *job.recipe.moe_aux_loss_coef;
}

// The last adapter is trained or applied, those before it are merged; without one to continue a new one is made.
void take_adapters(Job& job, Purpose purpose) {
  const Recipe& recipe = job.recipe;
  const std::vector<std::string>& adapters = recipe.adapter_name_or_path;
  const bool fresh = adapters.empty() || (purpose == Purpose::kTraining && recipe.create_new_adapter);
  job.merged.assign(adapters.begin(), fresh ? adapters.end() : adapters.end() - 1);
  job.adapter = fresh ? "" : adapters.back();
  job.lora = lora_options(recipe, job.model, job.adapter);
  job.pissa = purpose == Purpose::kTraining && fresh && recipe.pissa_init;
}

// Which parameters are trained and which frozen.
void divide_params(Job& job, Purpose purpose) {
  const Recipe& recipe = job.recipe;
  const bool adapted = !recipe.adapter_name_or_path.empty(), trains = purpose == Purpose::kTraining;
  if (trains && recipe.finetuning_type == "full" && adapted)
    throw UserError("finetuning_type: full does not take adapter_name_or_path; export the merged model first");
  if (trains ? recipe.finetuning_type == "lora" && !recipe.train_from_scratch : adapted) {
    take_adapters(job, purpose);
    divide_for_lora(job);
  } else if (!trains) {
    job.frozen = job.model.params;
  } else if (recipe.finetuning_type == "freeze") {
    FrozenAndTrained params = freeze_params(
        job.model, {recipe.freeze_trainable_layers, recipe.freeze_trainable_modules, recipe.freeze_extra_modules});
    job.frozen = std::move(params.frozen);
    job.trained = std::move(params.trained);
    for (const Param& param : job.frozen)
      if (param.of_classifier()) job.trained.push_back(param);
    std::erase_if(job.frozen, [](const Param& param) { return param.of_classifier(); });
  } else {
    job.trained = job.model.params;
  }
}

// Which parameters are trained, and in which memory each lies: under offload_param the layers in the host's, under
// offload_optimizer the masters. Last, since it asks for all the rest.
void place_params(Job& job) {
  for (Param& param : job.trained) param.trained = true;
  for (Param& param : job.reference) param.trained = false;
  for (std::vector<Param>* params : {&job.frozen, &job.trained, &job.reference})
    for (Param& param : *params)
      if ((job.recipe.offload_param && param.stacked()) || job.has_master(param)) param.memory = Memory::kHost;
  if (job.recipe.offload_param)
    for (QuantisedWeight& weight : job.quantised) weight.base.memory = Memory::kHost;
}

void set_dtypes(Job& job) {
  const Recipe& recipe = job.recipe;
  const bool low = recipe.bf16 || recipe.pure_bf16 || recipe.fp16;
  job.compute = recipe.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
  job.frozen_dtype = low ? job.compute : job.model.config.dtype;
  job.trained_dtype = recipe.pure_bf16 ? DType::kBF16 : DType::kF32;
  if (job.lora && recipe.lora_dtype != "float32") job.trained_dtype = dtype_from_hf(recipe.lora_dtype);
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
                    capability.empty() ? "of a kind that its plugin does not say" : capability);
}

Job make_job(const Recipe& recipe, const nlohmann::json& config, const std::string& file, int64_t devices,
             Purpose purpose) {
  check_schedule_type(recipe.lr_scheduler_type);
  check_labels(recipe, config, file);
  Job job{.recipe = recipe,
          .model = make_model(config, file, num_labels_of(recipe)),
          .lora = {},
          .frozen = {},
          .trained = {},
          .sharding = ShardingRules(make_mesh(recipe.mesh, devices), recipe.sharding),
          .optimizer = make_optimizer(recipe)};
  check_heads(job, file);
  set_balance(job);
  divide_params(job, purpose);
  if (purpose == Purpose::kTraining && job.trained.empty())
    throw UserError(
        "nothing is trained: lora_target, target_parameters and additional_target (or freeze_trainable_modules) name "
        "no "
        "weight; give one of them, or leave lora_target out for all linear layers");
  check_rates(job);
  check_offload(job);
  quantise_frozen(job, file);
  set_dtypes(job);
  if (purpose == Purpose::kTraining && has_reference(recipe)) job.reference = reference_params(job);
  place_params(job);
  if (purpose == Purpose::kInference) return job;
  if (recipe.fp8) check_float8(job);
  if (!recipe.ref_model.empty() && !job.quantised.empty())
    throw UserError(
        "{}: ref_model is held as it is, which does not go beside a base held as {}; leave ref_model out (the base "
        "without the adapter is the reference), or take the original weights without quantization_bit",
        recipe.where("ref_model"), job.quantised[0].format.name());
  for (const std::string& key : job.model.config.dropouts)
    warn("{}: '{}' asks for dropout in the base model, which is not applied", file, key);
  return job;
}

}  // namespace fettle
