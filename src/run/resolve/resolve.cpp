#include "run/resolve/resolve.h"

#include <utility>

#include "base/error.h"
#include "config/recipe.h"
#include "optim/schedule.h"
#include "run/batch_spec.h"
#include "run/resolve/data_spec.h"
#include "run/resolve/dtypes.h"
#include "run/resolve/expert_balance.h"
#include "run/resolve/params.h"
#include "run/resolve/quantise.h"
#include "run/resolve/recipe_specs.h"
#include "run/resolve/run_checks.h"

namespace fettle {
namespace {

// Returns the number of outputs of the classifier that the stage trains: one per label, or one score; 0 for a language
// model. Throws UserError when the stage needs labels and there are none.
int64_t num_labels_of(const Recipe& recipe, const Stage& stage, const std::optional<LabelSet>& labels) {
  if (stage.head == Head::kScore) return 1;
  if (stage.head == Head::kTokens) return 0;
  if (labels) return labels->size();
  throw UserError("{}: num_labels is missing; set it, or set dataset, so that the rows give it", recipe.where("stage"));
}

// Returns a run with the values that follow from single keys. The parameters are not divided yet.
Run start_run(const Recipe& recipe, const RunSource& source, const RunTarget& target, Purpose purpose,
              int64_t cutoff_len) {
  const auto& [asked, stage, models, config, labels] = source;
  Model model = make_model(with_asked_balance(recipe, config.json), config.file, num_labels_of(recipe, stage, labels));
  const ShardingRules sharding(mesh_of(recipe, target.count, purpose, model.params), recipe.sharding);
  return {.stage = &stage,
          .keys = KeyValues(recipe).only(stage.keys),
          .places = recipe.places,
          .target = target,
          .model_folder = models.model,
          .model_name = models.name_of(models.model),
          .model = std::move(model),
          .from_scratch = recipe.train_from_scratch,
          .adapter = {},
          .precision = {.tf32 = recipe.tf32},
          .offload = {.optimizer = recipe.offload_optimizer && recipe.offload_dir.empty(),
                      .param = recipe.offload_param,
                      .dir = recipe.offload_dir,
                      .dir_weights = recipe.offload_dir_weights},
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
}

}  // namespace

Run resolve(const RunSource& source, const RunTarget& target, Purpose purpose, const Variant& variant) {
  const Recipe recipe = with_variant(source.recipe, variant);
  const auto& [asked, stage, models, config, labels] = source;
  const bool trains = purpose == Purpose::kTraining;
  check_schedule_type(recipe.lr_scheduler_type);
  const int64_t cutoff_len =
      variant.cutoff_len ? recipe.cutoff_len : cutoff_len_of(recipe, stage, config.json, config.file);

  Run run = start_run(recipe, source, target, purpose, cutoff_len);
  check_score_head(run, config.json, config.file);
  check_tensor_parallel(run, config.file);

  set_balance(run, recipe, purpose);
  set_router_bias_rate(run, recipe, purpose);
  const MeshAxes& mesh = run.sharding.mesh();
  run.batch = batch_spec(recipe, stage, run.model.config, cutoff_len, mesh, BatchUse::kTraining);
  run.eval_batch = batch_spec(recipe, stage, run.model.config, cutoff_len, mesh, BatchUse::kEvaluation);

  divide_params(run, recipe, models, purpose, config.file);
  check_embedding_rate(run);
  check_low_rank(run);
  check_offload_param(run);
  check_pipeline(run, config.file);
  if (trains) check_offload_dir(run);

  quantise_frozen(run, recipe, purpose, config.file);
  set_dtypes(run, recipe, purpose, variant);
  set_reference(run, models.reference, purpose);
  place_params(run);
  if (trains) check_offload_dir_weights(run);
  check_remat(run);
  if (trains) set_float8(run, recipe);
  if (trains) warn_of_dropouts(run, config.file);
  set_side_by_side(run, variant.side_by_side);
  return run;
}

}  // namespace fettle
