// Defines RowSet: the rows of one data set on which `eval` measures a model.
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
  std::vector<std::string> notes;  // DataReport::notes
};

// The next two functions throw the same UserErrors as load_datasets, but accept rows without a label, except where
// val_size chooses the rows.

// Reads the rows that val_size holds out, the same as in training; without val_size, all rows of spec.sets.
RowSet read_own_set(DataSpec spec, const Tokenizer& tokenizer, int64_t vocab_size);
// Reads all rows of one data set.
RowSet read_named_set(DataSpec spec, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace fettle
