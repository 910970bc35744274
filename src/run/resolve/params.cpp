#include "run/resolve/params.h"

#include <algorithm>

#include "adapters/freeze.h"
#include "base/error.h"
#include "config/recipe.h"
#include "models/layer_groups.h"
#include "run/resolve/lora_options.h"
#include "run/resolve/quantise.h"

namespace fettle {
namespace {

// The last adapter is trained or applied; the adapters before it are merged. With create_new_adapter, training merges
// all adapters and makes a new one. Training also makes a new adapter if the recipe names none.
void take_adapters(Run& run, const Recipe& recipe, const ModelFolders& models, bool trains) {
  const std::vector<std::string>& adapters = models.adapters;
  const bool fresh = adapters.empty() || (trains && recipe.create_new_adapter);
  run.adapter.merged.assign(adapters.begin(), fresh ? adapters.end() : adapters.end() - 1);
  run.adapter.folder = fresh ? "" : adapters.back();
  Remarks remarks;
  run.adapter.lora = lora_options(recipe, run.model, run.adapter.folder, models.added_targets, remarks);
  // Other commands apply an adapter as it was trained, so the recipe's keys for training do not matter there.
  if (trains) std::ranges::move(remarks.warnings, std::back_inserter(run.remarks.warnings));
  run.adapter.pissa = trains && fresh && recipe.pissa_init;
  run.adapter.pissa_iterations = recipe.pissa_iter;
}

// Trains the LoRA weights and the saved modules, but not those that are only stored. Freezes all other weights of the
// base. Without training, all weights of the adapter are in `trained`.
void divide_for_lora(Run& run, bool trains) {
  run.trained = lora_params(run.model, *run.adapter.lora);
  const std::vector<Param> saved = saved_params(run.model, *run.adapter.lora),
                           changed = trains ? saved_params(run.model, without_stored(*run.adapter.lora)) : saved;
  const auto has = [](const std::vector<Param>& params, const Param& param) {
    return std::ranges::find(params, param.hf_name, &Param::hf_name) != params.end();
  };
  for (Param param : run.model.params) {
    const bool trained = has(changed, param);
    param.of_adapter = !trained && has(saved, param);
    (trained ? run.trained : run.frozen).push_back(std::move(param));
  }
}

void divide_for_freeze(Run& run, const Recipe& recipe) {
  FrozenAndTrained params = freeze_params(run.model, {recipe.freeze_trainable_layers, recipe.freeze_trainable_modules,
                                                      recipe.freeze_extra_modules, recipe.use_llama_pro});
  run.frozen = std::move(params.frozen);
  run.trained = std::move(params.trained);
  for (const Param& param : run.frozen)
    if (param.of_classifier()) run.trained.push_back(param);
  std::erase_if(run.frozen, [](const Param& param) { return param.of_classifier(); });
}

}  // namespace

void divide_params(Run& run, const Recipe& recipe, const ModelFolders& models, Purpose purpose,
                   const std::string& file) {
  const bool trains = purpose == Purpose::kTraining;
  const bool adapted = !models.adapters.empty();
  if (trains ? recipe.finetuning_type == "lora" && !recipe.train_from_scratch : adapted) {
    take_adapters(run, recipe, models, trains);
    split_stored_stacks(run, recipe, purpose, file);
    divide_for_lora(run, trains);
  } else if (!trains) {
    split_stored_stacks(run, recipe, purpose, file);
    run.frozen = run.model.params;
  } else if (recipe.finetuning_type == "freeze") {
    divide_for_freeze(run, recipe);
  } else {
    run.trained = run.model.params;
  }
  for (const Param& param : run.trained)
    if (param.role == Role::kBuffer) run.frozen.push_back(param);
  std::erase_if(run.trained, [](const Param& param) { return param.role == Role::kBuffer; });
  const std::vector<LayerGroup> groups = groups_of(run.model);
  run.trained = cut_at_groups(run.trained, groups);
  run.frozen = cut_at_groups(run.frozen, groups);
  if (trains && run.trained.empty())
    throw UserError(
        "nothing is trained: lora_target, target_parameters and additional_target (or freeze_trainable_modules) "
        "match no weights; set one of them, or remove lora_target to train all linear layers");
}

void set_reference(Run& run, const std::string& folder, Purpose purpose) {
  if (purpose == Purpose::kInference || !run.has_reference()) return;
  const bool trains = purpose == Purpose::kTraining;
  run.reference.folder = folder;
  if (!run.reference.folder.empty()) {
    run.reference.params = cut_at_groups(run.model.params, groups_of(run.model));
    if (!run.quantised.empty())
      throw UserError(
          "{}: ref_model is stored unquantised, but the base is stored as {}; remove ref_model (the base without the "
          "adapter is then the reference), or use the original weights without quantization_bit",
          run.places.of("ref_model"), run.quantised[0].format.name());
    return;
  }
  if (!trains && !run.adapter.lora)
    throw UserError(
        "{}: stage {} compares the trained model with the model before training; set ref_model to the model before "
        "training",
        run.places.of("stage"), run.stage->name);
  run.reference.params = run.trained;
  std::ranges::copy_if(run.frozen, std::back_inserter(run.reference.params),
                       [&](const Param& param) { return run.moves(param); });
  // The reference model is the base without an adapter in two cases. First, the run trains a new adapter, which has
  // no effect at the start. Second, the run evaluates an adapter, which is compared with the base.
  run.reference.adapted = trains && !run.adapter.folder.empty();
  if (!run.reference.adapted) std::erase_if(run.reference.params, [](const Param& param) { return param.is_lora(); });
}

void place_params(Run& run) {
  for (Param& param : run.trained) param.trained = true;
  for (Param& param : run.reference.params) param.trained = false;
  for (std::vector<Param>* params : {&run.frozen, &run.trained, &run.reference.params})
    for (Param& param : *params)
      if ((run.offload.param && param.stacked() && !run.moves(param)) || run.has_master(param))
        param.memory = Memory::kHost;
  if (run.offload.param)
    for (QuantisedWeight& weight : run.quantised) weight.base.memory = Memory::kHost;
}

void set_side_by_side(Run& run, const std::vector<SideAdapter>& adapters) {
  if (adapters.empty()) return;
  internal_check(!run.adapter.lora && run.trained.empty(),
                 "adapters are applied side by side only to a base, and without training");
  run.adapter.side_by_side = adapters;
  run.adapter.lora = joined_options(run.model, adapters);
  run.trained = cut_at_groups(lora_params(run.model, *run.adapter.lora), groups_of(run.model));
}

}  // namespace fettle
