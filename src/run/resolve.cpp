#include "run/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "adapters/freeze.h"
#include "base/error.h"
#include "base/log.h"
#include "config/recipe.h"
#include "data/classes/taught_labels.h"
#include "models/layer_groups.h"
#include "optim/schedule.h"
#include "run/batch_spec.h"
#include "run/data_spec.h"
#include "run/lora_options.h"
#include "run/quantise.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

Interval interval(const std::string& strategy, double steps) {
  if (strategy == "no" || strategy == "best") return {};
  if (strategy == "end") return {Interval::Every::kEnd};
  return {strategy == "epoch" ? Interval::Every::kEpoch : Interval::Every::kSteps, steps};
}

LengthSpec length_spec(const Recipe& r) {
  return {.epochs = r.num_train_epochs,
          .max_steps = r.max_steps,
          .warmup_ratio = r.warmup_ratio,
          .warmup_steps = r.warmup_steps,
          .max_warmup_steps = r.max_warmup_steps,
          .schedule = {.type = r.lr_scheduler_type,
                       .min_rate = r.min_lr ? *r.min_lr / r.learning_rate : r.min_lr_rate.value_or(0),
                       .power = r.lr_power,
                       .cycles = r.lr_num_cycles},
          .stable_steps = r.lr_num_stable_steps,
          .decay_steps = r.lr_num_decay_steps,
          .logging_steps = r.logging_steps,
          .save = interval(r.save_strategy, r.save_steps),
          .evaluate = interval(r.eval_strategy, r.eval_steps > 0 ? r.eval_steps : r.logging_steps)};
}

OptimSpec optim_spec(const Recipe& r) {
  OptimSpec spec{.rule = r.optim,
                 .args = r.optim_args,
                 .beta1 = r.adam_beta1,
                 .beta2 = r.adam_beta2,
                 .epsilon = r.adam_epsilon,
                 .args_at = r.where("optim_args")};
  if (r.use_muon) spec.rule = "muon";
  if (r.use_adam_mini) spec.rule = "adam_mini";
  if (r.use_apollo) {
    spec.rule = "apollo_adamw";
    spec.args = {{"rank", std::to_string(r.apollo_rank)},
                 {"update_proj_gap", std::to_string(r.apollo_update_interval)},
                 {"scale", fmt::format("{}", r.apollo_scale)},
                 {"proj", r.apollo_proj},
                 {"proj_type", r.apollo_proj_type},
                 {"scale_type", r.apollo_scale_type},
                 {"scale_front", r.apollo_scale_front ? "true" : "false"}};
  }
  if (r.set_at.contains("learning_rate")) spec.learning_rate_at = r.where("learning_rate");
  return spec;
}

UpdateSpec update_spec(const Recipe& r) {
  return {.learning_rate = r.learning_rate,
          .embedding_lr = r.embedding_lr,
          .loraplus_lr_ratio = r.loraplus_lr_ratio,
          .weight_decay = r.weight_decay,
          .max_grad_norm = r.max_grad_norm,
          .low_rank = r.apollo_target};
}

bool is_better_when_less(const std::string& metric) {
  return metric.ends_with("loss") || metric.ends_with("perplexity") || metric.ends_with("mse") ||
         metric.ends_with("mae");
}

BestSpec best_spec(const Recipe& r) {
  const std::string& metric = r.metric_for_best_model;
  return {
      .metric = metric.starts_with("eval_") ? metric : "eval_" + metric,
      .greater_is_better = r.greater_is_better == "auto" ? !is_better_when_less(metric) : r.greater_is_better == "true",
      .load_at_end = r.load_best_model_at_end,
      .is_asked = !r.of_tool.contains("load_best_model_at_end"),
      .save = r.save_strategy == "best",
      .patience = r.early_stopping_patience,
      .threshold = r.early_stopping_threshold,
      .metric_at = r.where("metric_for_best_model"),
      .load_at_end_at = r.where("load_best_model_at_end")};
}

OutputSpec output_spec(const Recipe& r) {
  return {.folder = r.output_dir,
          .overwrite = r.overwrite_output_dir,
          .resume_from = r.resume_from_checkpoint,
          .save_total_limit = r.save_total_limit,
          .save_only_model = r.save_only_model,
          .plot_loss = r.plot_loss,
          .html_report = r.html_report,
          .report_to = r.report_to,
          .run_name = r.run_name,
          .project = r.project,
          .logging_dir = r.logging_dir,
          .profile_steps = r.profiler_steps,
          .profile_start = r.profiler_steps_start,
          .changed_keys = KeyValues(r).changed_values().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

// Fills in a Run step by step. Each step may read the values that earlier steps set.
class Resolving {
 public:
  Resolving(const Recipe& recipe, const RunSource& source, Purpose purpose, Run& run)
      : recipe_(recipe),
        models_(source.models),
        config_(source.config),
        purpose_(purpose),
        trains_(purpose == Purpose::kTraining),
        compares_(purpose != Purpose::kInference && run.has_reference()),
        run_(run) {}

  void check_head() const {
    const Family& family = family_of(config_.json, config_.file);
    const std::string where = recipe_.where("stage");
    if (run_.stage->head == Head::kScore && family.encoder)
      throw UserError("{}: stage: {} needs a causal language model, but {} is an encoder; set stage: cls", where,
                      run_.stage->name, family.model_type);
    const int64_t stored = read_taught_labels(config_.json, config_.file).count();
    if (run_.stage->head == Head::kScore && !recipe_.train_from_scratch && stored > 1)
      throw UserError(
          "{}: the model is a classifier with {} labels, but stage: {} needs a single score; use the model that the "
          "classifier was trained from",
          config_.file, stored, run_.stage->name);
  }

  void check_mesh() const {
    const int64_t tp = run_.sharding.mesh().size_of("tp");
    const ModelConfig& config = run_.model.config;
    const int64_t heads = config.num_attention_heads;
    if (heads % tp != 0)
      throw UserError("mesh: tp {} does not divide num_attention_heads ({}) of {}", tp, heads, config_.file);
    // When tp has more devices than there are key heads, each device stores a copy of the key heads that its query
    // heads need.
    for (const auto& [key, key_heads] : config.key_heads())
      if (key_heads % tp != 0 && tp % key_heads != 0)
        throw UserError("mesh: tp {} does not fit {} ({}) of {}: tp must divide this number or be a multiple of it", tp,
                        key, key_heads, config_.file);
  }

  // Sets the weight of the load-balancing loss of experts.
  void set_balance() {
    if (run_.model.config.num_experts == 0 && recipe_.output_router_logits == "true")
      throw UserError("{}: output_router_logits: {} has no experts to balance; remove the key",
                      recipe_.where("output_router_logits"), run_.model.family->model_type);
    if (run_.model.config.num_experts == 0 && recipe_.moe_aux_loss_coef.value_or(0) != 0)
      warn("{}: moe_aux_loss_coef has no effect here: {} has no experts to balance", recipe_.where("moe_aux_loss_coef"),
           run_.model.family->model_type);
    const ModelConfig& config = run_.model.config;
    const bool by_tool = recipe_.output_router_logits != "false" && recipe_.moe_aux_loss_default.value_or(0) != 0;
    const bool asked = run_.stage->head == Head::kTokens && (by_tool || config.router_aux_loss_coef != 0);
    if (trains_ && asked && config.num_experts > 0 && !config.has_balancing_loss && !recipe_.moe_aux_loss_coef)
      warn("the experts of {} are trained without a loss that balances them; moe_aux_loss_coef adds one",
           run_.model.family->model_type);
    run_.model.config.router_aux_loss_coef = balance_factor(recipe_, *run_.stage, config);
  }

  // Sets the amount by which each step changes the corrections of routers.
  void set_correction_rate() {
    run_.correction_rate = trains_ ? recipe_.moe_router_bias_update_rate : 0;
    if (run_.correction_rate == 0) return;
    auto refuse = [&](const std::string& why, const char* remedy) {
      throw UserError("{}: moe_router_bias_update_rate: {}; {}", recipe_.where("moe_router_bias_update_rate"), why,
                      remedy);
    };
    const ModelConfig& config = run_.model.config;
    const std::string type = run_.model.family->model_type;
    if (config.num_experts == 0) refuse(type + " has no experts to balance", "remove the key");
    if (config.routing.correction.empty())
      refuse(fmt::format("the routers of {} have no corrections that a step could change", type),
             "remove the key; moe_aux_loss_coef balances the experts with a loss");
    if (recipe_.finetuning_type != "full")
      refuse(
          fmt::format("finetuning_type: {} leaves the routers of the base unchanged, and {}", recipe_.finetuning_type,
                      recipe_.finetuning_type == "lora" ? "an adapter has no place for their corrections"
                                                        : "most of its layers are frozen"),
          "set finetuning_type: full, or remove the key");
  }

  // Decides which parameters are trained and which are frozen.
  void divide_params() {
    const bool adapted = !models_.adapters.empty();
    if (trains_ ? recipe_.finetuning_type == "lora" && !recipe_.train_from_scratch : adapted) {
      take_adapters();
      split_stored_stacks(run_, recipe_, purpose_, config_.file);
      divide_for_lora();
    } else if (!trains_) {
      split_stored_stacks(run_, recipe_, purpose_, config_.file);
      run_.frozen = run_.model.params;
    } else if (recipe_.finetuning_type == "freeze") {
      divide_for_freeze();
    } else {
      run_.trained = run_.model.params;
    }
    for (const Param& param : run_.trained)
      if (param.role == Role::kBuffer) run_.frozen.push_back(param);
    std::erase_if(run_.trained, [](const Param& param) { return param.role == Role::kBuffer; });
    const std::vector<LayerGroup> groups = groups_of(run_.model);
    run_.trained = cut_at_groups(run_.trained, groups);
    run_.frozen = cut_at_groups(run_.frozen, groups);
    if (trains_ && run_.trained.empty())
      throw UserError(
          "nothing is trained: lora_target, target_parameters and additional_target (or freeze_trainable_modules) "
          "match no weights; set one of them, or remove lora_target to train all linear layers");
  }

  void check_rates() const {
    const bool embedding = std::ranges::any_of(run_.trained, [](const Param& param) {
      return param.role == Role::kTokenEmbedding || param.role == Role::kHead;
    });
    if (recipe_.embedding_lr && !run_.trained.empty() && !embedding)
      throw UserError(
          "{}: embedding_lr has no effect, because the embedding and the head are not trained; add them to "
          "additional_target, or remove the key",
          recipe_.where("embedding_lr"));
  }

  // Refuses an update rule that projects gradients (APOLLO) if no trained weight is a linear layer of apollo_target.
  // The rule would then project no gradient.
  void check_low_rank() const {
    if (!run_.optimizer.rule->projects || run_.trained.empty()) return;
    if (std::ranges::any_of(run_.trained, [&](const Param& param) { return optim_weight(run_, param).low_rank; }))
      return;
    throw UserError("{}: apollo_target: no trained linear layer has one of {} in its name",
                    recipe_.where("apollo_target"), fmt::join(run_.update.low_rank, ", "));
  }

  void check_offload() const {
    if (!recipe_.offload_param) return;
    if (const std::string refusal = offload_param_refusal(run_); !refusal.empty())
      throw UserError("{}: {}", recipe_.where("offload_param"), refusal);
  }

  // Refuses a pipeline whose stages would differ. Also refuses features that are not implemented for pipelines.
  void check_stages() const {
    const int64_t stages = run_.sharding.stages(), layers = run_.model.config.num_hidden_layers;
    if (stages == 1) return;
    const std::string where = recipe_.where("mesh"), type = run_.model.family->model_type;
    auto refuse = [&](const std::string& what, const std::string& remedy) {
      throw UserError("{}: mesh: pp {}: {}; {}", where, stages, what, remedy);
    };
    const std::string other_axes = "use fsdp or tp instead of pp";
    std::vector<LayerSet> sets;
    for (const std::vector<Param>* params : {&run_.trained, &run_.frozen})
      for (const Param& param : *params) sets.push_back(param.layers);
    const std::vector<LayerGroup> model_groups = groups_of(run_.model), groups = group_layers(layers, sets);
    if (layers % stages != 0)
      refuse(fmt::format("the {} layers of {} do not divide into {} equal stages", layers, config_.file, stages),
             "choose a pp that divides the number of layers");
    if (run_.model.config.links_layers() || model_groups.size() > 1 || model_groups[0].repeats % stages != 0)
      refuse(fmt::format("the layers of {} are of several kinds, so that stages would differ", type), other_axes);
    if (groups.size() > 1 || groups[0].repeats % stages != 0)
      refuse(
          "stages would differ, because only some layers are trained or the checkpoint stores some layers in another "
          "format",
          "remove freeze_trainable_layers if it is set, or " + other_axes);
    if (run_.model.config.num_experts > 0)
      refuse(fmt::format("pipelines are not implemented for models with experts, such as {}", type),
             "use ep or fsdp instead of pp");
    if (run_.offload_param || run_.offload_optimizer)
      refuse("the weights and the optimizer state of a stage must be on its devices",
             "remove offload_param and offload_optimizer");
    if (run_.batch.micro_batches < stages)
      warn(
          "{}: mesh: pp {}: gradient_accumulation_steps: {} gives fewer micro-batches than stages, so some stages are "
          "always idle; set it to at least {} (pp), or to {} (4 x pp) to keep all stages busy",
          where, stages, run_.batch.micro_batches, stages, 4 * stages);
  }

  // Refuses offload_dir for adapters, for pipelines, and for update rules without state.
  void check_offload_dir() const {
    if (!trains_ || recipe_.offload_dir.empty()) return;
    const std::string where = recipe_.where("offload_dir");
    if (run_.lora)
      throw UserError(
          "{}: offload_dir is for finetuning_type: full or freeze; the optimizer state of adapters is small, so remove "
          "the key",
          where);
    if (run_.sharding.stages() > 1)
      throw UserError(
          "{}: offload_dir does not work with pp in mesh; remove offload_dir, or use fsdp or tp instead of pp", where);
    if (std::ranges::all_of(run_.trained, [&](const Param& param) { return optimizer_state(run_, param).empty(); }))
      throw UserError("{}: optim: {} has no state that offload_dir could keep; remove offload_dir", where,
                      run_.optimizer.rule->name);
  }

  // offload_dir_weights moves the f32 copies of weights to the disk. Refuses it if no weight has both an f32 copy and a
  // 16-bit copy with which the step computes.
  void check_offload_dir_weights() const {
    if (!trains_ || !recipe_.offload_dir_weights) return;
    auto refuse = [&](const std::string& why) {
      throw UserError("{}: offload_dir_weights: {}", recipe_.where("offload_dir_weights"), why);
    };
    const std::string instead = "remove the key (offload_param: true keeps the layers' weights in host memory)";
    if (recipe_.offload_dir.empty())
      refuse(
          "the weights go into a file in offload_dir, but that key is not set; set offload_dir to a folder on a disk");
    if (run_.trained_dtype != DType::kF32)
      refuse("with pure_bf16, there are no float32 weights; set bf16: true instead of pure_bf16, or " + instead);
    if (run_.compute == DType::kF32)
      refuse(
          "without bf16 or fp16, the step computes with the float32 weights themselves, so they must stay in memory; "
          "set bf16: true, or " +
          instead);
    if (std::ranges::none_of(run_.trained, [&](const Param& param) { return run_.on_disk(param); }))
      refuse("no matrix of the layers is trained; remove the key");
  }

  void set_dtypes() {
    const bool low = recipe_.bf16 || recipe_.pure_bf16 || recipe_.fp16;
    run_.dtype_by_default =
        !recipe_.set_at.contains("bf16") && !recipe_.set_at.contains("fp16") && !recipe_.set_at.contains("pure_bf16");
    run_.compute = recipe_.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
    run_.frozen_dtype = low ? run_.compute : run_.model.config.dtype;
    run_.trained_dtype = recipe_.pure_bf16 ? DType::kBF16 : DType::kF32;
    if ((run_.lora || !trains_) && recipe_.lora_dtype != "float32")
      run_.trained_dtype = dtype_from_hf(recipe_.lora_dtype);
  }

  void set_reference() {
    if (!compares_) return;
    run_.reference_folder = models_.reference;
    run_.reference_at = recipe_.where("ref_model");
    if (!run_.reference_folder.empty()) {
      run_.reference = cut_at_groups(run_.model.params, groups_of(run_.model));
      if (!run_.quantised.empty())
        throw UserError(
            "{}: ref_model is stored unquantised, but the base is stored as {}; remove ref_model (the base without the "
            "adapter is then the reference), or use the original weights without quantization_bit",
            run_.reference_at, run_.quantised[0].format.name());
      return;
    }
    if (!trains_ && !run_.lora)
      throw UserError(
          "{}: stage {} compares the trained model with the model before training; set ref_model to the model before "
          "training",
          recipe_.where("stage"), run_.stage->name);
    run_.reference = run_.trained;
    std::ranges::copy_if(run_.frozen, std::back_inserter(run_.reference),
                         [&](const Param& param) { return run_.moves(param); });
    // The reference model is the base without an adapter in two cases. First, the run trains a new adapter, which has
    // no effect at the start. Second, the run evaluates an adapter, which is compared with the base.
    run_.reference_adapted = trains_ && !run_.adapter.empty();
    if (!run_.reference_adapted) std::erase_if(run_.reference, [](const Param& param) { return param.is_lora(); });
  }

  // Moves parameters to host memory: the layers' parameters if offload_param is set, and master weights if
  // offload_optimizer is set. Must come after set_dtypes and set_reference, because it reads their results.
  void place_params() {
    for (Param& param : run_.trained) param.trained = true;
    for (Param& param : run_.reference) param.trained = false;
    for (std::vector<Param>* params : {&run_.frozen, &run_.trained, &run_.reference})
      for (Param& param : *params)
        if ((run_.offload_param && param.stacked() && !run_.moves(param)) || run_.has_master(param))
          param.memory = Memory::kHost;
    if (run_.offload_param)
      for (QuantisedWeight& weight : run_.quantised) weight.base.memory = Memory::kHost;
  }

  void check_remat() const {
    if (run_.remat.full_percent > 0 && run_.trains_layers_on_host())
      throw UserError(
          "{}: gradient_checkpointing: {} treats some layers differently. This is not possible while offload_param "
          "keeps the trained weights of the layers in host memory; use full, linear, dots, attention or none",
          recipe_.where("gradient_checkpointing"), run_.remat.name);
  }

  void set_float8() {
    if (!trains_ || !recipe_.fp8) return;
    const std::string where = recipe_.where("fp8");
    if (run_.compute != DType::kBF16)
      throw UserError("{}: fp8 needs compute in bfloat16, found {}; set bf16: true, or remove fp8", where,
                      hf_name(run_.compute));
    if (!run_.quantised.empty())
      throw UserError(
          "{}: fp8 would round weights that are stored as {} a second time; remove fp8, or use the original weights",
          where, run_.quantised[0].format.name());
    run_.float8 = float8_of(run_.target.capability);
    if (!run_.float8 && run_.target.capability.empty())
      throw UserError(
          "{}: fp8: the plugin does not report the capability of {}, so Fettle does not know whether it multiplies "
          "8-bit floats; remove the key",
          where, run_.target.title);
    if (!run_.float8)
      throw UserError("{}: fp8: {} ({}) does not multiply 8-bit floats; remove the key", where, run_.target.title,
                      run_.target.capability);
  }

  void warn_of_dropouts() const {
    if (!trains_) return;
    for (const std::string& key : run_.model.config.dropouts)
      warn("{}: '{}' sets a dropout in the base model; Fettle does not apply this dropout", config_.file, key);
  }

  // Applies these adapters side by side, as one joined LoRA.
  void set_side_by_side(const std::vector<SideAdapter>& adapters) {
    if (adapters.empty()) return;
    internal_check(!trains_ && !run_.lora, "adapters are applied side by side only to a base, and without training");
    run_.side_by_side = adapters;
    run_.lora = joined_options(run_.model, adapters);
    run_.trained = cut_at_groups(lora_params(run_.model, *run_.lora), groups_of(run_.model));
  }

 private:
  // The last adapter is trained or applied; the adapters before it are merged. With create_new_adapter, training merges
  // all adapters and makes a new one. Training also makes a new adapter if the recipe names none.
  void take_adapters() {
    const std::vector<std::string>& adapters = models_.adapters;
    const bool fresh = adapters.empty() || (trains_ && recipe_.create_new_adapter);
    run_.merged.assign(adapters.begin(), fresh ? adapters.end() : adapters.end() - 1);
    run_.adapter = fresh ? "" : adapters.back();
    run_.lora = lora_options(recipe_, run_.model, run_.adapter, models_.added_targets);
    run_.pissa = trains_ && fresh && recipe_.pissa_init;
    run_.pissa_iterations = recipe_.pissa_iter;
  }

  // Trains the LoRA weights and the saved modules. Freezes all other weights of the base.
  void divide_for_lora() {
    run_.trained = lora_params(run_.model, *run_.lora);
    const std::vector<Param> saved = saved_params(run_.model, *run_.lora);
    for (const Param& param : run_.model.params) {
      const bool trained = std::ranges::find(saved, param.hf_name, &Param::hf_name) != saved.end();
      (trained ? run_.trained : run_.frozen).push_back(param);
    }
  }

  void divide_for_freeze() {
    FrozenAndTrained params =
        freeze_params(run_.model, {recipe_.freeze_trainable_layers, recipe_.freeze_trainable_modules,
                                   recipe_.freeze_extra_modules, recipe_.use_llama_pro});
    run_.frozen = std::move(params.frozen);
    run_.trained = std::move(params.trained);
    for (const Param& param : run_.frozen)
      if (param.of_classifier()) run_.trained.push_back(param);
    std::erase_if(run_.frozen, [](const Param& param) { return param.of_classifier(); });
  }

  const Recipe& recipe_;
  const ModelFolders& models_;
  const ModelConfigFile& config_;
  Purpose purpose_;
  bool trains_;
  bool compares_;  // the run computes a loss that needs a reference model
  Run& run_;
};

// Returns the number of outputs of the classifier that the stage trains: one per label, or one score; 0 for a language
// model. Throws UserError when the stage needs labels and there are none.
int64_t num_labels_of(const Recipe& recipe, const Stage& stage, const std::optional<LabelSet>& labels) {
  if (stage.head == Head::kScore) return 1;
  if (stage.head == Head::kTokens) return 0;
  if (labels) return labels->size();
  throw UserError("{}: num_labels is missing; set it, or set dataset, so that the rows give it", recipe.where("stage"));
}

}  // namespace

Run resolve(const RunSource& source, const RunTarget& target, Purpose purpose, const Variant& variant) {
  const auto& [asked, stage, models, config, labels] = source;
  const Recipe recipe = with_variant(asked, variant);
  check_schedule_type(recipe.lr_scheduler_type);
  const int64_t cutoff_len =
      variant.cutoff_len ? recipe.cutoff_len : cutoff_len_of(recipe, stage, config.json, config.file);
  Model model = make_model(with_asked_balance(recipe, config.json), config.file, num_labels_of(recipe, stage, labels));
  const ShardingRules sharding(mesh_of(recipe, target.count, purpose, model.config.hidden_size), recipe.sharding);
  Run run{.stage = &stage,
          .keys = KeyValues(recipe).only(stage.keys),
          .target = target,
          .model_folder = models.model,
          .model_name = models.name_of(models.model),
          .model = std::move(model),
          .from_scratch = recipe.train_from_scratch,
          .lora = {},
          .tf32 = recipe.tf32,
          .offload_optimizer = recipe.offload_optimizer && recipe.offload_dir.empty(),
          .offload_param = recipe.offload_param,
          .offload_dir = recipe.offload_dir,
          .offload_dir_at = recipe.where("offload_dir"),
          .offload_dir_weights = recipe.offload_dir_weights,
          .remat = remat_policy(recipe.remat_is_auto() ? "full" : recipe.gradient_checkpointing),
          .remat_auto = recipe.remat_is_auto(),
          .sharding = sharding,
          .loss_sharding = sharding.outside_layers(),
          .noise_alpha = recipe.neftune_noise_alpha,
          .update = update_spec(recipe),
          .optimizer = make_optimizer(optim_spec(recipe)),
          .rows_per_device = rows_per_device(recipe, BatchUse::kTraining),
          .eval_rows_per_device = rows_per_device(recipe, BatchUse::kEvaluation),
          .data = data_spec(recipe, stage, labels, cutoff_len),
          .length = length_spec(recipe),
          .best = best_spec(recipe),
          .output = output_spec(recipe),
          .seed = static_cast<uint64_t>(recipe.seed)};
  Resolving steps(recipe, source, purpose, run);
  steps.check_head();
  steps.check_mesh();
  steps.set_balance();
  steps.set_correction_rate();
  run.batch = batch_spec(recipe, stage, run.model.config, cutoff_len, sharding.mesh(), BatchUse::kTraining);
  run.eval_batch = batch_spec(recipe, stage, run.model.config, cutoff_len, sharding.mesh(), BatchUse::kEvaluation);
  steps.divide_params();
  steps.check_rates();
  steps.check_low_rank();
  steps.check_offload();
  steps.check_stages();
  steps.check_offload_dir();
  quantise_frozen(run, recipe, purpose, config.file);
  steps.set_dtypes();
  steps.set_reference();
  steps.place_params();
  steps.check_offload_dir_weights();
  steps.check_remat();
  steps.set_float8();
  steps.warn_of_dropouts();
  steps.set_side_by_side(variant.side_by_side);
  if ((variant.frozen_in_f32 || (variant.merges_in_f32 && !run.merged.empty())) && run.quantised.empty())
    run.frozen_dtype = DType::kF32;
  return run;
}

}  // namespace fettle
