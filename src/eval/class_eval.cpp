#include "eval/class_eval.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/files.h"
#include "eval/class_evaluation.h"
#include "eval/eval.h"
#include "eval/row_sets.h"
#include "run/preflight.h"
#include "step/evaluate.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// What a model says of each set's rows.
struct Said {
  std::vector<std::vector<float>> logits;
  std::vector<ClassEvaluation> found;
};

Said ask(const Request& request, const std::string& name, Devices& devices, const Tokenizer& tokenizer,
         const std::vector<RowSet>& sets, const LabelSet& labels) {
  const ModelRepository& repository = request.repository();
  const Run run = request.resolve(target_of(devices), Purpose::kInference);
  check_vocabulary(run, repository.folder(), tokenizer);
  for (const RowSet& set : sets) check_positions(run, set.rows);
  TrainState state = load_state(devices, run, repository, false);
  Said out;
  for (const RowSet& set : sets) {
    info("{}: {} ({} rows)", name, set.name, set.rows.size());
    out.logits.push_back(Evaluator(devices, run, set.rows).logits(state));
    out.found.push_back(evaluate_classes(set.rows, out.logits.back(), labels));
  }
  return out;
}

Measured measured(const ClassEvaluation& found, int64_t rows) {
  Measured out{{}, rows, {}};
  if (found.rows == 0) return out;
  out.figures["loss"] = found.loss;
  for (const auto& [name, value] : found.figures())
    out.figures[name] = found.problem == Problem::kRegression ? value : 100 * value;
  if (found.problem == Problem::kSingleLabel) out.figures["majority"] = 100 * found.scores.majority();
  return out;
}

ordered_json label_json(const std::vector<float>& classes, const LabelSet& labels) {
  if (labels.problem == Problem::kSingleLabel) return labels.name(static_cast<int64_t>(classes[0]));
  if (labels.problem == Problem::kRegression) {
    std::vector<double> numbers;
    for (const float number : classes) numbers.push_back(std::stod(fmt::format("{}", number)));  // 0.1, not 0.100000001
    return numbers.size() == 1 ? ordered_json(numbers[0]) : ordered_json(numbers);
  }
  ordered_json names = ordered_json::array();
  for (size_t k = 0; k < classes.size(); ++k)
    if (classes[k] != 0) names.push_back(labels.name(static_cast<int64_t>(k)));
  return names;
}

std::string predictions(const RowSet& set, const std::vector<float>& logits, const LabelSet& labels) {
  const auto each = static_cast<size_t>(labels.size());
  std::string lines;
  for (size_t i = 0; i < set.rows.size(); ++i) {
    const std::span<const float> found = std::span(logits).subspan(i * each, each);
    ordered_json line{{"predict", label_json(said_classes(found, labels.problem), labels)}};
    if (const auto truth = set.rows.classes(static_cast<int64_t>(i)); !truth.empty())
      line["label"] = label_json({truth.begin(), truth.end()}, labels);
    if (labels.problem != Problem::kRegression) {
      const std::vector<double> shares = probabilities(found, labels.problem);
      for (size_t k = 0; k < each; ++k) line["probabilities"][labels.name(static_cast<int64_t>(k))] = shares[k];
    }
    line["source"] = set.rows.source(static_cast<int64_t>(i));
    lines += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  return lines;
}

void write_files(const fs::path& folder, const std::vector<RowSet>& sets, const Said& said, const LabelSet& labels) {
  for (size_t s = 0; s < sets.size(); ++s) {
    std::string name = sets[s].name;
    std::ranges::replace(name, '/', '_');
    const fs::path place = sets.size() == 1 ? folder : folder / name;
    fs::create_directories(place);
    write_file(place / "predictions.jsonl", predictions(sets[s], said.logits[s], labels));
    write_class_report(place, said.found[s], labels);
  }
}

// The request for eval_base_model, which must have been taught the same labels.
Request base_of(const Request& request) {
  const EvalSpec spec = request.eval();
  const Request base = request.with_model(spec.base_model);
  if (!base.has_taught_head())
    throw UserError("{}: {} was taught no labels; name a classifier of the same ones, or leave it out",
                    spec.base_model_at, spec.base_model);
  if (base.labels()->id2label != request.labels()->id2label || base.labels()->problem != request.labels()->problem)
    throw UserError("{}: {} has other labels than {}, or another problem_type; there is nothing to compare",
                    spec.base_model_at, spec.base_model, request.model_folder());
  return base;
}

// 0 where config.json has none; resolve refuses it then.
int64_t vocab_size_of(const Request& request) {
  const nlohmann::json size = request.repository().config().value("vocab_size", nlohmann::json());
  return size.is_number_integer() ? size.get<int64_t>() : 0;
}

}  // namespace

int run_class_eval(const Request& request, bool json, std::ostream& out) {
  const EvalSpec spec = request.eval();
  for (const std::string& task : spec.tasks)
    if (task != "auto")
      throw UserError("{}: eval_task: {} asks for text, and {} is a classifier; leave eval_task out", spec.tasks_at,
                      task, request.model_folder());
  const LabelSet labels = *request.labels();
  const Tokenizer tokenizer = Tokenizer::open(request.model_folder());
  const std::vector<RowSet> sets = read_row_sets(request.data(), tokenizer, vocab_size_of(request));

  Devices devices(request.devices());
  std::vector<EvalSet> names;
  for (const RowSet& set : sets) names.push_back({.name = set.name, .task = Task::kClasses});
  std::vector<EvalColumn> columns;
  auto add = [&](const std::string& name, const Request& model) {
    const Said said = ask(model, name, devices, tokenizer, sets, labels);
    EvalColumn column{name, model.model_title(), {}};
    for (size_t s = 0; s < sets.size(); ++s)
      column.sets.push_back(measured(said.found[s], static_cast<int64_t>(sets[s].rows.size())));
    columns.push_back(std::move(column));
    return said;
  };
  if (!spec.base_model.empty()) add("base", base_of(request));
  const Said said = add(columns.empty() ? "model" : "tuned", request);

  const std::string text = write_eval_json(spec.output_dir, names, columns);
  if (!spec.output_dir.empty()) write_files(spec.output_dir, sets, said, labels);
  out << (json ? text : format_eval(names, columns));
  if (json) return 0;
  for (size_t s = 0; s < sets.size(); ++s) {
    const std::string tables = said.found[s].rows > 0
                                   ? format_class_tables(said.found[s], labels)
                                   : fmt::format("no row has a label; {} were predicted\n", sets[s].rows.size());
    if (!tables.empty()) out << fmt::format("\n{}\n{}", sets[s].name, tables);
  }
  return 0;
}

}  // namespace fettle
