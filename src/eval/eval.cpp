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
#include "run/data_spec.h"
#include "run/device_request.h"
#include "step/make_job.h"
#include "step/positions.h"

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

// A model to measure: the recipe that opens it.
struct Contender {
  std::string name;
  Recipe recipe;
};

std::vector<Contender> contenders(const Recipe& recipe) {
  Recipe base = recipe;
  base.adapter_name_or_path.clear();
  if (!recipe.eval_base_model.empty()) {
    base.model_name_or_path = recipe.eval_base_model;
    return {{"base", base}, {"tuned", recipe}};
  }
  if (!recipe.adapter_name_or_path.empty()) return {{"base", base}, {"tuned", recipe}};
  return {{"model", recipe}};
}

EvalSet loss_set(const RowSet& set) {
  return {.name = set.name, .task = Task::kLoss, .rows = set.rows};
}

EvalSet named_set(const std::string& name, const std::string& wanted, const Recipe& recipe, const Tokenizer& tokenizer,
                  int64_t vocab_size) {
  const DataSource source = find_source(name, recipe.dataset_dir);
  const Task task = wanted == "auto" ? detect_task(source) : task_named(wanted);
  if (task == Task::kLoss)
    return loss_set(read_named_set(data_spec(recipe, {}, recipe.cutoff_len), name, tokenizer, vocab_size));
  EvalSet set{.name = name, .task = task};
  if (task == Task::kGeneration)
    set.prompts = read_prompts(recipe, source);
  else
    set.questions = read_questions(recipe, source);
  return set;
}

std::vector<EvalSet> read_sets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t vocab_size) {
  const std::vector<std::string>& tasks = recipe.eval_task;
  if (tasks.size() > 1 && tasks.size() != recipe.eval_dataset.size())
    throw UserError("{}: eval_task names {} tasks for {} data sets of eval_dataset; give one for all, or one for each",
                    recipe.where("eval_task"), tasks.size(), recipe.eval_dataset.size());
  std::vector<EvalSet> sets;
  if (recipe.eval_dataset.empty()) {
    info("eval_dataset is not given: {} of dataset ({}) {} measured",
         recipe.val_size > 0 ? "what val_size holds back" : "the rows", fmt::join(recipe.dataset, ", "),
         recipe.val_size > 0 ? "is" : "are");
    sets.push_back(loss_set(read_own_set(data_spec(recipe, {}, recipe.cutoff_len), tokenizer, vocab_size)));
  }
  for (size_t i = 0; i < recipe.eval_dataset.size(); ++i)
    sets.push_back(named_set(recipe.eval_dataset[i], tasks[tasks.size() > 1 ? i : 0], recipe, tokenizer, vocab_size));
  return sets;
}

Job job_of(const Contender& contender, const ModelRepository& repository, const Devices& devices) {
  return make_job(contender.recipe, repository.config(), (repository.folder() / "config.json").string(),
                  devices.count(), Purpose::kInference);
}

EvalColumn column(const Contender& contender, Devices& devices, const std::vector<EvalSet>& sets, const Session& text) {
  const ModelRepository repository = ModelRepository::open(contender.recipe.model_name_or_path);
  const Job job = job_of(contender, repository, devices);
  check_vocabulary(job, repository.folder(), text.tokenizer());
  TrainState state = load_state(devices, job, repository, false);
  EvalColumn out{contender.name, model_path(contender.recipe), {}};
  for (const EvalSet& set : sets) {
    info("{}: {} ({})", contender.name, set.name, task_name(set.task));
    out.sets.push_back(measure(set, {devices, job, state}, contender.recipe, text));
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

std::string model_path(const Recipe& recipe) {
  std::string path = recipe.model_name_or_path;
  for (const std::string& adapter : recipe.adapter_name_or_path) path += " + " + adapter;
  return path;
}

std::string write_eval_json(const Recipe& recipe, const std::vector<EvalSet>& sets,
                            const std::vector<EvalColumn>& models) {
  const std::string text = eval_json(sets, models).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  if (!recipe.output_dir.empty()) {
    std::filesystem::create_directories(recipe.output_dir);
    write_file(std::filesystem::path(recipe.output_dir) / "evaluation.json", text);
  }
  return text;
}

int run_eval(const Recipe& asked, bool json, std::ostream& out) {
  require_keys(asked, {"model_name_or_path"}, "eval");
  if (asked.dataset.empty() && asked.eval_dataset.empty())
    throw UserError("eval: neither eval_dataset nor dataset is given; name the rows to evaluate on");
  if (asked.stage == "rm") return run_reward_eval(asked, json, out);
  if (asks_of_classifier(asked)) return run_class_eval(asked, json, out);
  Recipe recipe = asked;
  recipe.train_from_scratch = false;
  if (recipe.stage != "pt") recipe.stage = "sft";  // replies are what is measured, however they were taught
  if (!recipe.eval_base_model.empty() &&
      std::filesystem::weakly_canonical(recipe.eval_base_model) ==
          std::filesystem::weakly_canonical(recipe.model_name_or_path) &&
      recipe.adapter_name_or_path.empty())
    throw UserError("{}: eval_base_model is model_name_or_path itself; there is nothing to compare",
                    recipe.where("eval_base_model"));

  const Session text(recipe, Session::Template::kIfThere);
  const std::vector<EvalSet> sets = read_sets(recipe, text.tokenizer(), text.vocab_size());
  Devices devices(device_request(recipe));
  const std::vector<Contender> all = contenders(recipe);
  // What is wrong with the second is said before the first is measured.
  for (const Contender& contender : all)
    job_of(contender, ModelRepository::open(contender.recipe.model_name_or_path), devices);
  std::vector<EvalColumn> models;
  for (const Contender& contender : all) models.push_back(column(contender, devices, sets, text));

  const std::string result = write_eval_json(recipe, sets, models);
  if (!recipe.output_dir.empty())
    write_predictions(std::filesystem::path(recipe.output_dir) / "generated_predictions.jsonl", sets, models);
  out << (json ? result : format_eval(sets, models));
  return 0;
}

}  // namespace fettle
