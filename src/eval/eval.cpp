#include "eval/eval.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/files.h"
#include "eval/class_eval.h"
#include "eval/reward_eval.h"
#include "eval/row_sets.h"
#include "run/preflight.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

struct Figure {
  const char* name;
  bool less_is_better = false;
};
// In the order of the table.
constexpr Figure kFigures[] = {
    {"loss", true},  {"perplexity", true}, {"token_accuracy"}, {"accuracy"}, {"accuracy_norm"},
    {"exact_match"}, {"rouge1"},           {"rouge2"},         {"rougeL"},   {"bleu"},
    {"f1_macro"},    {"f1_micro"},         {"majority"},       {"margin"},   {"mean_reward"},
    {"mse", true},   {"mae", true},        {"pearson"},        {"spearman"}};

// A model to measure: the request that opens it.
struct Contender {
  std::string name;
  Request request;
};

std::vector<Contender> contenders(const Request& request) {
  const EvalSpec spec = request.eval();
  if (!spec.base_model.empty()) return {{"base", request.with_model(spec.base_model)}, {"tuned", request}};
  if (!request.adapters().empty()) return {{"base", request.without_adapters()}, {"tuned", request}};
  return {{"model", request}};
}

EvalSet loss_set(const RowSet& set) {
  return {.name = set.name, .task = Task::kLoss, .rows = set.rows};
}

EvalSet named_set(const std::string& name, const std::string& wanted, const DataSpec& data, const Tokenizer& tokenizer,
                  int64_t vocab_size) {
  const DataSource source = find_source(name, data.dataset_dir);
  const Task task = wanted == "auto" ? detect_task(source) : task_named(wanted);
  if (task == Task::kLoss) return loss_set(read_named_set(data, name, tokenizer, vocab_size));
  EvalSet set{.name = name, .task = task};
  if (task == Task::kGeneration)
    set.prompts = read_prompts(data, source);
  else
    set.questions = read_questions(data, source);
  return set;
}

std::vector<EvalSet> read_sets(const EvalSpec& spec, const DataSpec& data, const Tokenizer& tokenizer,
                               int64_t vocab_size) {
  const std::vector<std::string>& tasks = spec.tasks;
  if (tasks.size() > 1 && tasks.size() != data.eval_sets.size())
    throw UserError("{}: eval_task names {} tasks for {} data sets of eval_dataset; give one for all, or one for each",
                    spec.tasks_at, tasks.size(), data.eval_sets.size());
  std::vector<EvalSet> sets;
  if (data.eval_sets.empty()) {
    info("eval_dataset is not given: {} of dataset ({}) {} measured",
         data.val_size > 0 ? "what val_size holds back" : "the rows", fmt::join(data.sets, ", "),
         data.val_size > 0 ? "is" : "are");
    sets.push_back(loss_set(read_own_set(data, tokenizer, vocab_size)));
  }
  for (size_t i = 0; i < data.eval_sets.size(); ++i)
    sets.push_back(named_set(data.eval_sets[i], tasks[tasks.size() > 1 ? i : 0], data, tokenizer, vocab_size));
  return sets;
}

Run run_of(const Contender& contender, const Devices& devices) {
  return contender.request.resolve(target_of(devices), Purpose::kInference);
}

EvalColumn column(const Contender& contender, Devices& devices, const std::vector<EvalSet>& sets, const Session& text) {
  const ModelRepository& repository = contender.request.repository();
  const Run run = run_of(contender, devices);
  check_vocabulary(run, repository.folder(), text.tokenizer());
  TrainState state = load_state(devices, run, repository, false);
  EvalColumn out{contender.name, contender.request.model_title(), {}};
  for (const EvalSet& set : sets) {
    info("{}: {} ({})", contender.name, set.name, task_name(set.task));
    out.sets.push_back(measure(set, {devices, run, state}, contender.request.generation(), text));
  }
  return out;
}

std::string number(const std::string& figure, double value) {
  const bool exact = figure == "loss" || figure == "margin" || figure == "mean_reward" || figure == "mse" ||
                     figure == "mae" || figure == "pearson" || figure == "spearman";
  return exact ? fmt::format("{:.4f}", value) : fmt::format("{:.2f}", value);
}

std::string verdict(const Figure& figure, double change) {
  if (std::abs(change) < 5e-5) return "same";
  return (change < 0) == figure.less_is_better ? "better" : "worse";
}

void write_predictions(const std::filesystem::path& file, const std::vector<EvalSet>& sets,
                       const std::vector<EvalColumn>& models) {
  std::string lines;
  for (size_t s = 0; s < sets.size(); ++s)
    for (size_t i = 0; i < sets[s].prompts.size(); ++i) {
      const Prompt& prompt = sets[s].prompts[i];
      ordered_json line{{"prompt", prompt.messages.back().content},
                        {"predict", models.back().sets[s].replies[i]},
                        {"label", prompt.references[0]}};
      if (models.size() > 1) line["base"] = models.front().sets[s].replies[i];
      line["source"] = prompt.where;
      lines += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    }
  if (!lines.empty()) write_file(file, lines);
}

}  // namespace

std::string format_eval(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models) {
  size_t widest = 4;
  for (const EvalSet& set : sets) widest = std::max(widest, set.name.size());
  std::string out = fmt::format("{:<{}}  {:<15}", "set", widest, "figure");
  for (const EvalColumn& model : models) out += fmt::format("{:>12}", model.name);
  out += models.size() > 1 ? fmt::format("{:>12}\n", "change") : "\n";
  for (size_t s = 0; s < sets.size(); ++s) {
    bool first = true;
    for (const Figure& figure : kFigures) {
      const auto& values = models.front().sets[s].figures;
      if (!values.contains(figure.name)) continue;
      out += fmt::format("{:<{}}  {:<15}", std::exchange(first, false) ? sets[s].name : "", widest, figure.name);
      for (const EvalColumn& model : models)
        out += fmt::format("{:>12}", number(figure.name, model.sets[s].figures.at(figure.name)));
      if (models.size() > 1) {
        const double change = models.back().sets[s].figures.at(figure.name) - values.at(figure.name);
        out += fmt::format("{:>12}  {}", (change < 0 ? "-" : "+") + number(figure.name, std::abs(change)),
                           verdict(figure, change));
      }
      out += "\n";
    }
  }
  return out;
}

ordered_json eval_json(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models) {
  ordered_json out;
  for (const EvalColumn& model : models) out["models"][model.name] = model.path;
  out["sets"] = ordered_json::array();
  for (size_t s = 0; s < sets.size(); ++s) {
    ordered_json set{{"name", sets[s].name}, {"task", task_name(sets[s].task)}, {"items", models[0].sets[s].items}};
    for (const EvalColumn& model : models) set[model.name] = model.sets[s].figures;
    if (models.size() > 1)
      for (const auto& [name, value] : models.back().sets[s].figures)
        set["change"][name] = value - models.front().sets[s].figures.at(name);
    out["sets"].push_back(std::move(set));
  }
  return out;
}

namespace {

// Labels and scores need a head that was taught them.
void require_head(const Request& request) {
  const Head head = request.stage().head;
  if (head == Head::kTokens || request.has_taught_head()) return;
  throw UserError(
      "{}: this model was {}, nor was an adapter; train it with stage: {}, or give the adapter with "
      "adapter_name_or_path",
      request.model_folder(), head == Head::kScore ? "not taught to score replies" : "taught no labels yet",
      request.stage().name);
}

}  // namespace

std::string write_eval_json(const std::string& output_dir, const std::vector<EvalSet>& sets,
                            const std::vector<EvalColumn>& models) {
  const std::string text = eval_json(sets, models).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  if (!output_dir.empty()) {
    std::filesystem::create_directories(output_dir);
    write_file(std::filesystem::path(output_dir) / "evaluation.json", text);
  }
  return text;
}

int run_eval(const Request& request, bool json, std::ostream& out) {
  const EvalSpec spec = request.eval();
  require_head(request);
  const DataSpec data = request.data();
  if (data.sets.empty() && data.eval_sets.empty())
    throw UserError("eval: neither eval_dataset nor dataset is given; name the rows to evaluate on");
  if (request.stage().head == Head::kScore) return run_reward_eval(request, json, out);
  if (request.stage().head == Head::kLabels) return run_class_eval(request, json, out);
  if (!spec.base_model.empty() && request.adapters().empty() &&
      std::filesystem::weakly_canonical(spec.base_model) == std::filesystem::weakly_canonical(request.model_folder()))
    throw UserError("{}: eval_base_model is model_name_or_path itself; there is nothing to compare",
                    spec.base_model_at);

  const Session text(request, Session::Template::kIfThere);
  const std::vector<EvalSet> sets = read_sets(spec, data, text.tokenizer(), text.vocab_size());
  Devices devices(request.devices());
  const std::vector<Contender> all = contenders(request);
  // What is wrong with the second is said before the first is measured.
  for (const Contender& contender : all) run_of(contender, devices);
  std::vector<EvalColumn> models;
  for (const Contender& contender : all) models.push_back(column(contender, devices, sets, text));

  const std::string result = write_eval_json(spec.output_dir, sets, models);
  if (!spec.output_dir.empty())
    write_predictions(std::filesystem::path(spec.output_dir) / "generated_predictions.jsonl", sets, models);
  out << (json ? result : format_eval(sets, models));
  return 0;
}

}  // namespace fettle
