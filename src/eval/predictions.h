// Defines what `eval` writes beside its table: each reply, each row's label, and classification reports.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "eval/eval_table.h"

namespace fettle {

// Writes into `folder`, which exists: generated_predictions.jsonl, if there are prompts; and for sets of labelled rows
// predictions.jsonl and the files of write_class_report. Several such sets have a folder each. `labels` may be null if
// the stage trains none.
void write_predictions(const std::filesystem::path& folder, const std::vector<EvalSet>& sets,
                       const std::vector<EvalColumn>& models, const LabelSet* labels);

// The tables of the labels, set by set, of the last model; empty if the stage trains none.
std::string format_label_tables(const std::vector<EvalSet>& sets, const EvalColumn& model, const LabelSet* labels);

}  // namespace fettle
