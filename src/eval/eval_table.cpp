#include "eval/eval_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fettle {
namespace {

using nlohmann::ordered_json;

enum class Unit { kShare, kLargeNumber, kNumber };
enum class Better { kMore, kLess, kUnknown };

struct Figure {
  std::string name;
  Unit unit = Unit::kNumber;
  Better better = Better::kUnknown;
};

// Returns the known metrics in the order of the table.
const std::vector<Figure>& known_figures() {
  static const std::vector<Figure> figures = {{"loss", Unit::kNumber, Better::kLess},
                                              {"perplexity", Unit::kLargeNumber, Better::kLess},
                                              {"token_accuracy", Unit::kShare, Better::kMore},
                                              {"accuracy", Unit::kShare, Better::kMore},
                                              {"accuracy_norm", Unit::kShare, Better::kMore},
                                              {"exact_match", Unit::kShare, Better::kMore},
                                              {"rouge1", Unit::kShare, Better::kMore},
                                              {"rouge2", Unit::kShare, Better::kMore},
                                              {"rougeL", Unit::kShare, Better::kMore},
                                              {"bleu", Unit::kShare, Better::kMore},
                                              {"f1_macro", Unit::kShare, Better::kMore},
                                              {"f1_micro", Unit::kShare, Better::kMore},
                                              {"majority", Unit::kShare, Better::kMore},
                                              {"margin", Unit::kNumber, Better::kMore},
                                              {"mean_reward", Unit::kNumber, Better::kMore},
                                              {"rewards/accuracies", Unit::kShare, Better::kMore},
                                              {"rewards/margins", Unit::kNumber, Better::kMore},
                                              {"mse", Unit::kNumber, Better::kLess},
                                              {"mae", Unit::kNumber, Better::kLess},
                                              {"pearson", Unit::kNumber, Better::kMore},
                                              {"spearman", Unit::kNumber, Better::kMore}};
  return figures;
}

// Returns the metrics of one set: first the known metrics in the order of the table, then the other metrics by name.
std::vector<Figure> figures_of(const Measured& measured) {
  std::vector<Figure> out;
  for (const Figure& figure : known_figures())
    if (measured.figures.contains(figure.name)) out.push_back(figure);
  for (const auto& [name, value] : measured.figures)
    if (std::ranges::find(known_figures(), name, &Figure::name) == known_figures().end()) out.push_back({.name = name});
  return out;
}

std::string number(const Figure& figure, double value) {
  return figure.unit == Unit::kNumber ? fmt::format("{:.4f}", value) : fmt::format("{:.2f}", value);
}

std::string verdict(const Figure& figure, double change) {
  if (std::abs(change) < 5e-5) return "same";
  if (figure.better == Better::kUnknown) return "";
  return (change < 0) == (figure.better == Better::kLess) ? "better" : "worse";
}

}  // namespace

std::map<std::string, double> in_percent(std::map<std::string, double> figures) {
  for (const Figure& figure : known_figures())
    if (const auto found = figures.find(figure.name); found != figures.end() && figure.unit == Unit::kShare)
      found->second *= 100;
  return figures;
}

std::string format_eval(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models) {
  size_t widest = 4, widest_figure = 15;
  for (const EvalSet& set : sets) widest = std::max(widest, set.name.size());
  for (const Measured& measured : models.front().sets)
    for (const auto& [name, value] : measured.figures) widest_figure = std::max(widest_figure, name.size());
  std::string out = fmt::format("{:<{}}  {:<{}}", "set", widest, "figure", widest_figure);
  for (const EvalColumn& model : models) out += fmt::format("{:>12}", model.name);
  out += models.size() > 1 ? fmt::format("{:>12}\n", "change") : "\n";
  for (size_t s = 0; s < sets.size(); ++s) {
    bool first = true;
    for (const Figure& figure : figures_of(models.front().sets[s])) {
      out += fmt::format("{:<{}}  {:<{}}", std::exchange(first, false) ? sets[s].name : "", widest, figure.name,
                         widest_figure);
      for (const EvalColumn& model : models)
        out += fmt::format("{:>12}", number(figure, model.sets[s].figures.at(figure.name)));
      if (models.size() > 1) {
        const double change =
            models.back().sets[s].figures.at(figure.name) - models.front().sets[s].figures.at(figure.name);
        out += fmt::format("{:>12}  {}", (change < 0 ? "-" : "+") + number(figure, std::abs(change)),
                           verdict(figure, change));
      }
      out += "\n";
    }
  }
  return out;
}

ordered_json eval_json(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models, const Stage& stage) {
  ordered_json out;
  for (const EvalColumn& model : models) out["models"][model.name] = model.path;
  out["sets"] = ordered_json::array();
  for (size_t s = 0; s < sets.size(); ++s) {
    ordered_json set{
        {"name", sets[s].name}, {"task", task_name(sets[s].task, stage)}, {"items", models[0].sets[s].items}};
    for (const EvalColumn& model : models) set[model.name] = model.sets[s].figures;
    if (models.size() > 1)
      for (const auto& [name, value] : models.back().sets[s].figures)
        set["change"][name] = value - models.front().sets[s].figures.at(name);
    out["sets"].push_back(std::move(set));
  }
  return out;
}

}  // namespace fettle
