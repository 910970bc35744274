// Defines the files that `eval` writes in addition to its table: replies, labels of rows, and classification reports.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "eval/eval_table.h"

namespace fettle {

// Writes into `folder`, which exists: generated_predictions.jsonl, if there are prompts; and for sets of labelled rows
// predictions.jsonl and the files of write_class_report. If there are several such sets, each has its own folder.
// `labels` may be null if the stage trains no labels.
void write_predictions(const std::filesystem::path& folder, const std::vector<EvalSet>& sets,
                       const std::vector<EvalColumn>& models, const LabelSet* labels);

// Formats the last model's tables of labels, set by set; "" if the stage trains no labels.
std::string format_label_tables(const std::vector<EvalSet>& sets, const EvalColumn& model, const LabelSet* labels);

}  // namespace fettle
