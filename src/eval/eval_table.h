// Defines the table of `eval`: each figure of each set, one column a model.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/measure.h"

namespace fettle {

// One model's figures, in the order of the sets.
struct EvalColumn {
  std::string name;  // base and tuned, or model if it is the only one
  std::string path;  // folders of the model and its adapters
  std::vector<Measured> sets;
};

// The table as text. With two models it also has the change, and whether the change is for the better.
std::string format_eval(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models);
// The same as JSON, which is the content of evaluation.json. `stage` names the task of rows.
nlohmann::ordered_json eval_json(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models,
                                 const Stage& stage);

// Turns shares from 0 to 1 into percent; other figures keep their value.
std::map<std::string, double> in_percent(std::map<std::string, double> figures);

}  // namespace fettle
