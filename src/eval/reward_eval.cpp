#include "eval/reward_eval.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/repository.h"
#include "eval/class_eval.h"
#include "eval/eval.h"
#include "eval/row_sets.h"
#include "run/data_spec.h"
#include "run/device_request.h"
#include "step/evaluate.h"
#include "step/make_job.h"
#include "step/positions.h"

namespace fettle {
namespace {

Measured measured(const Evaluation& found) {
  Measured out{{{"loss", found.loss}}, found.samples, {}};
  for (const auto& [name, value] : found.figures) out.figures[name] = name == "accuracy" ? 100 * value : value;
  return out;
}

}  // namespace

int run_reward_eval(const Recipe& asked, bool json, std::ostream& out) {
  Recipe recipe = asked;
  recipe.train_from_scratch = false;
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  if (!has_head(recipe))
    throw UserError(
        "{}: this model was not taught to score replies; train it with stage: rm, or give the adapter with "
        "adapter_name_or_path",
        recipe.model_name_or_path);
  if (!recipe.eval_base_model.empty())
    throw UserError("{}: a reward model has no base to compare with; measure each by itself",
                    recipe.where("eval_base_model"));
  Devices devices(device_request(recipe));
  const Job job = make_job(recipe, repository.config(), (repository.folder() / "config.json").string(), devices.count(),
                           Purpose::kInference);
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const std::vector<RowSet> sets =
      read_row_sets(data_spec(recipe, {}, recipe.cutoff_len), tokenizer, job.model.config.vocab_size);
  for (const RowSet& set : sets) check_positions(job, set.rows);
  TrainState state = load_state(devices, job, repository, false);
  EvalColumn column{"model", model_path(recipe), {}};
  std::vector<EvalSet> names;
  for (const RowSet& set : sets) {
    info("{} ({} pairs)", set.name, set.rows.size() / 2);
    names.push_back({.name = set.name, .task = Task::kReward});
    column.sets.push_back(measured(Evaluator(devices, job, set.rows).run(state)));
  }
  const std::string text = write_eval_json(recipe, names, {column});
  out << (json ? text : format_eval(names, {column}));
  return 0;
}

}  // namespace fettle
