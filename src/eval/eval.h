// Defines the command `eval`, which measures a model on one or more sets of rows. If there is a base to compare with,
// measures the base, too.
#pragma once

#include <ostream>

#include "run/request.h"

namespace fettle {

// Measures the model on the sets of eval_dataset, each with its eval_task. Without eval_dataset, the only set is the
// rows that val_size holds out, or else the whole dataset. If there is a base to compare with, measures the base first.
// The base is the model that eval_base_model names. Without that key, the base is the model without its adapters, and
// there is a base only if
// - the model has adapters,
// - the base has the stage's head with the same labels, and
// - the stage's loss does not already compare with a reference model.
//
// Prints a table, or JSON. With output_dir, also writes the JSON to evaluation.json in this folder, beside the files of
// write_predictions. Throws UserError, before weights are loaded, if this folder is not writable, and after printing if
// a figure comes from numbers that are not finite.
int run_eval(const Request& request, bool json, std::ostream& out);

}  // namespace fettle
