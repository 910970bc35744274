#include "eval/class_eval.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/files.h"
#include "checkpoint/repository.h"
#include "eval/class_evaluation.h"
#include "eval/eval.h"
#include "eval/row_sets.h"
#include "run/data_spec.h"
#include "run/device_request.h"
#include "run/labels.h"
#include "step/evaluate.h"
#include "step/make_job.h"
#include "step/positions.h"
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

std::string config_file(const Recipe& recipe) {
  return (fs::path(recipe.model_name_or_path) / "config.json").string();
}

nlohmann::json config_of(const Recipe& recipe) {
  return read_json_file(config_file(recipe));
}

LabelSet settled(const Recipe& recipe) {
  return *settled_labels(recipe, config_of(recipe), config_file(recipe));
}

Said ask(const Recipe& recipe, const std::string& name, Devices& devices, const Tokenizer& tokenizer,
         const std::vector<RowSet>& sets, const LabelSet& labels) {
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const Job job = make_job(recipe, repository.config(), (repository.folder() / "config.json").string(), devices.count(),
                           Purpose::kInference);
  check_vocabulary(job, repository.folder(), tokenizer);
  for (const RowSet& set : sets) check_positions(job, set.rows);
  TrainState state = load_state(devices, job, repository, false);
  Said out;
  for (const RowSet& set : sets) {
    info("{}: {} ({} rows)", name, set.name, set.rows.size());
    out.logits.push_back(Evaluator(devices, job, set.rows).logits(state));
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

}  // namespace

bool has_head(const Recipe& recipe) {
  if (taught_labels(recipe.adapter_name_or_path, config_of(recipe), config_file(recipe)).count() > 0) return true;
  return std::ranges::any_of(recipe.adapter_name_or_path, [](const std::string& adapter) {
    const fs::path file = fs::path(adapter) / "adapter_config.json";
    if (!fs::exists(file)) return false;
    const nlohmann::json config = read_json_file(file);
    return config.is_object() && config.value("task_type", nlohmann::json()) == "SEQ_CLS";
  });
}

namespace {

// The recipe for eval_base_model, which must have been taught the same labels.
Recipe base_of(const Recipe& recipe, const LabelSet& labels) {
  Recipe base = recipe;
  base.model_name_or_path = recipe.eval_base_model;
  base.adapter_name_or_path.clear();
  base.problem_type.clear();
  base.num_labels.reset();
  base.id2label.clear();
  const std::string where = recipe.where("eval_base_model");
  if (!has_head(base))
    throw UserError("{}: {} was taught no labels; name a classifier of the same ones, or leave it out", where,
                    base.model_name_or_path);
  const LabelSet own = settled(base);
  base = settled_recipe(base, own, config_of(base));
  if (own.id2label != labels.id2label || own.problem != labels.problem)
    throw UserError("{}: {} has other labels than {}, or another problem_type; there is nothing to compare", where,
                    base.model_name_or_path, recipe.model_name_or_path);
  return base;
}

// 0 where config.json has none; make_job refuses it then.
int64_t vocab_size_of(const Recipe& recipe) {
  const nlohmann::json size = config_of(recipe).value("vocab_size", nlohmann::json());
  return size.is_number_integer() ? size.get<int64_t>() : 0;
}

}  // namespace

bool asks_of_classifier(const Recipe& recipe) {
  if (recipe.stage == "cls") return true;
  if (recipe.stage == "rm" || recipe.set_at.contains("stage")) return false;
  return fs::exists(fs::path(recipe.model_name_or_path) / "config.json") && has_head(recipe);
}

int run_class_eval(const Recipe& asked, bool json, std::ostream& out) {
  Recipe recipe = asked;
  recipe.stage = "cls";
  recipe.train_from_scratch = false;
  for (const std::string& task : recipe.eval_task)
    if (task != "auto")
      throw UserError("{}: eval_task: {} asks for text, and {} is a classifier; leave eval_task out",
                      recipe.where("eval_task"), task, recipe.model_name_or_path);
  if (!has_head(recipe))
    throw UserError(
        "{}: this model was taught no labels yet, nor was an adapter; train it with stage: cls, or give the "
        "adapter with adapter_name_or_path",
        recipe.model_name_or_path);
  const LabelSet labels = settled(recipe);
  recipe = settled_recipe(recipe, labels, config_of(recipe));
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const std::vector<RowSet> sets =
      read_row_sets(data_spec(recipe, labels, recipe.cutoff_len), tokenizer, vocab_size_of(recipe));

  Devices devices(device_request(recipe));
  std::vector<EvalSet> names;
  for (const RowSet& set : sets) names.push_back({.name = set.name, .task = Task::kClasses});
  std::vector<EvalColumn> columns;
  auto add = [&](const std::string& name, const Recipe& model) {
    const Said said = ask(model, name, devices, tokenizer, sets, labels);
    EvalColumn column{name, model_path(model), {}};
    for (size_t s = 0; s < sets.size(); ++s)
      column.sets.push_back(measured(said.found[s], static_cast<int64_t>(sets[s].rows.size())));
    columns.push_back(std::move(column));
    return said;
  };
  if (!recipe.eval_base_model.empty()) add("base", base_of(recipe, labels));
  const Said said = add(columns.empty() ? "model" : "tuned", recipe);

  const std::string text = write_eval_json(recipe, names, columns);
  if (!recipe.output_dir.empty()) write_files(recipe.output_dir, sets, said, labels);
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
