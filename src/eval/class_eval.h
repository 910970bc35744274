// Defines the command `eval` of a classifier: its figures on labelled rows, and its labels for every row.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "run/request.h"

namespace fettle {

// The sets are eval_dataset's, else the rows that val_size sets apart, or else the dataset; rows need no label. With
// eval_base_model that classifier is measured first. Prints the table, or JSON; with output_dir it also goes to
// evaluation.json there, each row's label and probabilities to predictions.jsonl, and the tables and pictures of
// write_class_report go beside them (of several sets into a folder each).
int run_class_eval(const Request& request, bool json, std::ostream& out);

}  // namespace fettle
