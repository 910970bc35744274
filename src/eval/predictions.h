// Defines the files that `eval` writes in addition to its table: replies, labels of rows, and classification reports.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "eval/eval_table.h"

namespace fettle {

// Writes into `folder`, which must exist. If there are prompts, writes generated_predictions.jsonl. If the stage trains
// labels, writes predictions.jsonl and the files of write_class_report for each set. If there are several sets, each
// set has a folder of its own. `labels` may be null if the stage trains no labels.
void write_predictions(const std::filesystem::path& folder, const std::vector<EvalSet>& sets,
                       const std::vector<EvalColumn>& models, const LabelSet* labels);

// Formats the label tables of `model`, set by set; "" if the stage trains no labels.
std::string format_label_tables(const std::vector<EvalSet>& sets, const EvalColumn& model, const LabelSet* labels);

}  // namespace fettle
