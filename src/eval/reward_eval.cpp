#include "eval/reward_eval.h"

#include "base/error.h"
#include "base/log.h"
#include "eval/eval.h"
#include "eval/row_sets.h"
#include "run/preflight.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

Measured measured(const Evaluation& found) {
  Measured out{{{"loss", found.loss}}, found.samples, {}};
  for (const auto& [name, value] : found.figures) out.figures[name] = name == "accuracy" ? 100 * value : value;
  return out;
}

}  // namespace

int run_reward_eval(const Request& request, bool json, std::ostream& out) {
  const EvalSpec spec = request.eval();
  if (!spec.base_model.empty())
    throw UserError("{}: a reward model has no base to compare with; measure each by itself", spec.base_model_at);
  Devices devices(request.devices());
  const Run run = request.resolve(target_of(devices), Purpose::kInference);
  const Tokenizer tokenizer = Tokenizer::open(request.model_folder());
  const std::vector<RowSet> sets = read_row_sets(request.data(), tokenizer, run.model.config.vocab_size);
  for (const RowSet& set : sets) check_positions(run, set.rows);
  TrainState state = load_state(devices, run, request.repository(), false);
  EvalColumn column{"model", request.model_title(), {}};
  std::vector<EvalSet> names;
  for (const RowSet& set : sets) {
    info("{} ({} pairs)", set.name, set.rows.size() / 2);
    names.push_back({.name = set.name, .task = Task::kReward});
    column.sets.push_back(measured(Evaluator(devices, run, set.rows).run(state)));
  }
  const std::string text = write_eval_json(spec.output_dir, names, {column});
  out << (json ? text : format_eval(names, {column}));
  return 0;
}

}  // namespace fettle
