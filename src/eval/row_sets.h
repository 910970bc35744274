// Defines RowSet: the rows of one data set that `eval` measures a model on.
#pragma once

#include <string>
#include <vector>

#include "data/data_spec.h"
#include "data/store/examples.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct RowSet {
  std::string name;
  Examples rows;
  std::vector<std::string> notes;  // those of DataReport
};

// Both functions throw UserError as load_datasets does. Labelled rows may lack their label.

// The rows that val_size holds out; without val_size, all rows of spec.sets.
RowSet read_own_set(DataSpec spec, const Tokenizer& tokenizer, int64_t vocab_size);
// All rows of one data set.
RowSet read_named_set(DataSpec spec, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace fettle
