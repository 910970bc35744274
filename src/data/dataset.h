// Defines the way from the user's rows to examples: reading, formats, chat template, labels, cutting, mixing.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/recipe.h"
#include "data/store/examples.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// What happened to the rows; `fettle data` and train show it.
struct DataReport {
  int64_t rows = 0;
  int64_t examples = 0;
  int64_t tokens = 0;          // of the examples that num_samples, mix_strategy and val_size leave; so trained_tokens
  int64_t trained_tokens = 0;  // of stage cls: rows with a label
  std::map<std::string, int64_t> tokens_by_role;
  std::map<std::string, int64_t> trained_by_role;
  int64_t truncated = 0;                              // cut to cutoff_len
  int64_t dropped = 0;                                // too long (overlength: drop), empty, or without a trained token
  int64_t empty = 0;                                  // of the dropped: without any text or token
  int64_t bad_rows = 0;                               // skipped by on_bad_row: skip
  std::vector<std::pair<std::string, int64_t>> sets;  // examples of each data set, before val_size
  int64_t duplicates = 0;                             // examples whose tokens and labels an earlier one has; they stay
  std::string labels;              // of stage cls: format_classes of what is left to train, or to evaluate
  std::vector<std::string> notes;  // the first few of each with file:line
};

struct Datasets {
  Examples train;
  Examples eval;  // from eval_dataset, or val_size split off by the seed
  DataReport report;
  DataReport eval_report;
};

// Reads, renders, tokenises and labels every row of recipe.dataset (and eval_dataset) on all cores, once: what comes of
// it is kept on the disk (DataCache) and mapped, so that neither memory nor the next run's start grows with the rows.
// The order is that of the files, or of mix_strategy. Stage pt reads plain texts, and long ones on in further
// examples; other stages cut at cutoff_len by `overlength`.
// Of stage cls the recipe is a settled one (classes/labels.h), and rows without a label are refused unless
// `unlabelled`. Throws UserError with file:line for a broken row or an unknown format (unless on_bad_row: skip), an id
// at or beyond `model_vocab_size` (0: not checked), a row too long under overlength: error, and when nothing is left to
// train.
Datasets load_datasets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size,
                       bool unlabelled = false);

}  // namespace fettle
