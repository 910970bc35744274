// Defines what `fettle data` shows before training: counts, lengths, packing, and rows as the model sees them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "config/recipe.h"
#include "data/batches/batches.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct DataOptions {
  bool json = false;    // one JSON object instead of text
  bool colour = false;  // trained spans in colour; else between ⟦ and ⟧
  int64_t rows = 3;     // examples to show
};

// The text of an example with its special tokens visible and its trained spans marked; line ends are shown as ⏎.
std::string format_example(const Example& example, const Tokenizer& tokenizer, bool colour);

// Counts, a histogram of lengths, what was left out and why, steps per epoch and the use of the batches' positions.
std::string format_data_report(const Datasets& data, const Batches& batches, const Recipe& recipe);
nlohmann::ordered_json data_report_json(const Datasets& data, const Batches& batches, const Recipe& recipe);

// The command: reads the recipe's data as `train` does and writes the report to `out`. The batches are those of
// `device_count` devices (1 when the recipe does not say), split by the mesh's dp and fsdp. Gives the exit code.
int run_data(const Recipe& recipe, const DataOptions& options, std::ostream& out);

}  // namespace fettle
