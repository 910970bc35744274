#include "run/resolve/run_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "data/classes/taught_labels.h"
#include "models/layer_groups.h"

namespace fettle {

void check_score_head(const Run& run, const nlohmann::json& config, const std::string& file) {
  const Family& family = *run.model.family;
  if (run.stage->head == Head::kScore && family.encoder)
    throw UserError("{}: stage: {} needs a causal language model, but {} is an encoder; set stage: cls",
                    run.places.of("stage"), run.stage->name, family.model_type);
  const int64_t stored = read_taught_labels(config, file).count();
  if (run.stage->head == Head::kScore && !run.from_scratch && stored > 1)
    throw UserError(
        "{}: the model is a classifier with {} labels, but stage: {} needs a single score; use the model that the "
        "classifier was trained from",
        file, stored, run.stage->name);
}

void check_tensor_parallel(const Run& run, const std::string& file) {
  const int64_t tp = run.sharding.mesh().size_of("tp");
  const ModelConfig& config = run.model.config;
  const int64_t heads = config.num_attention_heads;
  if (heads % tp != 0) throw UserError("mesh: tp {} does not divide num_attention_heads ({}) of {}", tp, heads, file);
  // When tp has more devices than there are key heads, each device stores a copy of the key heads that its query
  // heads need.
  for (const auto& [key, key_heads] : config.key_heads())
    if (key_heads % tp != 0 && tp % key_heads != 0)
      throw UserError("mesh: tp {} does not fit {} ({}) of {}: tp must divide this number or be a multiple of it", tp,
                      key, key_heads, file);
}

void check_embedding_rate(const Run& run) {
  const bool embedding = std::ranges::any_of(
      run.trained, [](const Param& param) { return param.role == Role::kTokenEmbedding || param.role == Role::kHead; });
  if (run.update.embedding_lr && !run.trained.empty() && !embedding)
    throw UserError(
        "{}: embedding_lr has no effect, because the embedding and the head are not trained; add them to "
        "additional_target, or remove the key",
        run.places.of("embedding_lr"));
}

void check_low_rank(const Run& run) {
  if (!run.optimizer.rule->projects || run.trained.empty()) return;
  if (std::ranges::any_of(run.trained, [&](const Param& param) { return optim_weight(run, param).low_rank; })) return;
  throw UserError("{}: apollo_target: no trained linear layer has one of {} in its name",
                  run.places.of("apollo_target"), fmt::join(run.update.apollo_target, ", "));
}

void check_pipeline(Run& run, const std::string& file) {
  const int64_t stages = run.sharding.stages(), layers = run.model.config.num_hidden_layers;
  if (stages == 1) return;
  const std::string where = run.places.of("mesh"), type = run.model.family->model_type;
  auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw UserError("{}: mesh: pp {}: {}; {}", where, stages, what, remedy);
  };
  const std::string other_axes = "use fsdp or tp instead of pp";
  std::vector<LayerSet> sets;
  for (const std::vector<Param>* params : {&run.trained, &run.frozen})
    for (const Param& param : *params) sets.push_back(param.layers);
  const std::vector<LayerGroup> model_groups = groups_of(run.model), groups = group_layers(layers, sets);
  if (layers % stages != 0)
    refuse(fmt::format("the {} layers of {} do not divide into {} equal stages", layers, file, stages),
           "choose a pp that divides the number of layers");
  if (run.model.config.links_layers() || model_groups.size() > 1 || model_groups[0].repeats % stages != 0)
    refuse(fmt::format("the layers of {} are of several kinds, so that stages would differ", type), other_axes);
  if (groups.size() > 1 || groups[0].repeats % stages != 0)
    refuse(
        "stages would differ, because only some layers are trained or the checkpoint stores some layers in another "
        "format",
        "remove freeze_trainable_layers if it is set, or " + other_axes);
  if (run.model.config.num_experts > 0)
    refuse(fmt::format("pipelines are not implemented for models with experts, such as {}", type),
           "use ep or fsdp instead of pp");
  if (run.offload.param || run.offload.optimizer)
    refuse("the weights and the optimizer state of a stage must be on its devices",
           "remove offload_param and offload_optimizer");
  if (run.batch.micro_batches < stages)
    run.remarks.warnings.push_back(fmt::format(
        "{}: mesh: pp {}: gradient_accumulation_steps: {} gives fewer micro-batches than stages, so some stages are "
        "always idle; set it to at least {} (pp), or to {} (4 x pp) to keep all stages busy",
        where, stages, run.batch.micro_batches, stages, 4 * stages));
}

void check_offload_param(const Run& run) {
  if (!run.offload.param) return;
  if (const std::string refusal = offload_param_refusal(run); !refusal.empty())
    throw UserError("{}: {}", run.places.of("offload_param"), refusal);
}

void check_offload_dir(const Run& run) {
  if (run.offload.dir.empty()) return;
  const std::string where = run.places.of("offload_dir");
  if (run.adapter.lora)
    throw UserError(
        "{}: offload_dir is for finetuning_type: full or freeze; the optimizer state of adapters is small, so remove "
        "the key",
        where);
  if (run.sharding.stages() > 1)
    throw UserError(
        "{}: offload_dir does not work with pp in mesh; remove offload_dir, or use fsdp or tp instead of pp", where);
  if (std::ranges::all_of(run.trained, [&](const Param& param) { return optimizer_state(run, param).empty(); }))
    throw UserError("{}: optim: {} has no state that offload_dir could keep; remove offload_dir", where,
                    run.optimizer.rule->name);
}

void check_offload_dir_weights(const Run& run) {
  if (!run.offload.dir_weights) return;
  auto refuse = [&](const std::string& why) {
    throw UserError("{}: offload_dir_weights: {}", run.places.of("offload_dir_weights"), why);
  };
  const std::string instead = "remove the key (offload_param: true keeps the layers' weights in host memory)";
  if (run.offload.dir.empty())
    refuse("the weights go into a file in offload_dir, but that key is not set; set offload_dir to a folder on a disk");
  if (run.precision.trained != DType::kF32)
    refuse("with pure_bf16, there are no float32 weights; set bf16: true instead of pure_bf16, or " + instead);
  if (run.precision.compute == DType::kF32)
    refuse(
        "without bf16 or fp16, the step computes with the float32 weights themselves, so they must stay in memory; "
        "set bf16: true, or " +
        instead);
  if (std::ranges::none_of(run.trained, [&](const Param& param) { return run.on_disk(param); }))
    refuse("no matrix of the layers is trained; remove the key");
}

void check_remat(const Run& run) {
  if (run.remat.full_percent > 0 && run.trains_layers_on_host())
    throw UserError(
        "{}: gradient_checkpointing: {} treats some layers differently. This is not possible while offload_param "
        "keeps the trained weights of the layers in host memory; use full, linear, dots, attention or none",
        run.places.of("gradient_checkpointing"), run.remat.name);
}

void warn_of_dropouts(Run& run, const std::string& file) {
  for (const std::string& key : run.model.config.dropouts)
    run.remarks.warnings.push_back(
        fmt::format("{}: '{}' sets a dropout in the base model; Fettle does not apply this dropout", file, key));
}

}  // namespace fettle
