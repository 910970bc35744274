// Defines RowSet: labelled rows, pairs or conversations that `eval` measures a model on.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/store/examples.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct RowSet {
  std::string name;
  Examples rows;
  std::vector<std::string> notes;  // DataReport's
};

// These throw UserError as load_datasets does. Rows of stage cls need no label.

// The rows that val_size sets apart, or else all of `dataset`.
RowSet read_own_set(Recipe recipe, const Tokenizer& tokenizer, int64_t vocab_size);
// All rows of one data set.
RowSet read_named_set(Recipe recipe, const std::string& name, const Tokenizer& tokenizer, int64_t vocab_size);
// eval_dataset's sets one by one, else the recipe's own. Notes go to stderr.
std::vector<RowSet> read_row_sets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace fettle
