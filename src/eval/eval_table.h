// Defines the table of `eval`: one line for each metric of each set, one column for each model.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/measure.h"

namespace fettle {

// The metrics of one model, in the order of the sets.
struct EvalColumn {
  std::string name;  // "base" or "tuned"; "model" if there is only one model
  std::string path;  // folders of the model and its adapters
  std::vector<Measured> sets;
};

// Formats the table. With two models, the table also shows the change, and whether the change is an improvement.
std::string format_eval(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models);
// Returns the table as JSON: the content of evaluation.json. `stage` gives the task name of sets with Task::kRows.
nlohmann::ordered_json eval_json(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models,
                                 const Stage& stage);

// Converts the metrics that are shares (0 to 1) into percent; other metrics keep their value.
std::map<std::string, double> in_percent(std::map<std::string, double> figures);

}  // namespace fettle
