// Defines the command `eval`: what a model can do on one or more sets, beside its base where there is one.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "eval/measure.h"
#include "run/request.h"

namespace fettle {

// One model's figures, in the order of the sets.
struct EvalColumn {
  std::string name;  // base, tuned, or model when it is alone
  std::string path;  // folders of the model and its adapter
  std::vector<Measured> sets;
};

// A line for each figure of each set: the models' values, and with two models the change and whether it is for the
// better.
std::string format_eval(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models);
nlohmann::ordered_json eval_json(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models);

// eval_json as text, which also goes to evaluation.json of `output_dir` unless that is empty.
std::string write_eval_json(const std::string& output_dir, const std::vector<EvalSet>& sets,
                            const std::vector<EvalColumn>& models);

// The sets are eval_dataset's, each by its eval_task; else the rows that val_size sets apart, or else the dataset. With
// adapter_name_or_path or eval_base_model the base is measured first. Prints the table, or JSON; with output_dir it
// also goes to evaluation.json there, and replies to generated_predictions.jsonl.
int run_eval(const Request& request, bool json, std::ostream& out);

}  // namespace fettle
