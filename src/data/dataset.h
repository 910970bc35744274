// Defines load_datasets, which turns the user's rows into examples: it reads files, detects formats, renders the chat
// template, adds labels, cuts long rows and mixes data sets.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/data_spec.h"
#include "data/store/examples.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// What `fettle data` and `fettle train` report about the rows.
struct DataReport {
  int64_t rows = 0;
  int64_t examples = 0;                // a preference pair counts as one
  std::vector<std::string> chosen_by;  // keys that chose among the examples, such as num_samples and val_size
  // `tokens` and `trained_tokens` count only the chosen rows.
  int64_t tokens = 0;
  int64_t trained_tokens = 0;  // for a classifier: the number of rows with a label
  std::map<std::string, int64_t> tokens_by_role;
  std::map<std::string, int64_t> trained_by_role;
  int64_t truncated = 0;  // rows that were cut to cutoff_len
  int64_t dropped = 0;    // rows too long (overlength: drop), empty, without a trained token, or with two equal replies
  int64_t empty = 0;      // the dropped rows that have no text or no token
  int64_t bad_rows = 0;   // rows that were skipped because of `on_bad_row: skip`
  std::vector<std::pair<std::string, int64_t>> sets;  // examples taken from each data set, before val_size
  int64_t duplicates = 0;                             // rows that have the same tokens and labels as an earlier row
  bool duplicates_removed = false;                    // true: the duplicates are left out
  std::string labels;                                 // labelled rows only: the text of format_classes
  std::vector<std::string> notes;                     // remarks about rows, with file:line; the first few of each kind
};

struct Datasets {
  Examples train;
  Examples eval;  // rows of eval_dataset, or the rows that val_size holds out
  DataReport report;
  DataReport eval_report;
};

// Reads, renders, tokenises and labels every row of spec.sets and spec.eval_sets, on all cores. The result is stored on
// the disk (DataCache) and mapped. So memory does not grow with the rows, and the next run need not tokenise the rows
// again.
// The rows keep the order of the files, unless spec.mix sets another order. Throws UserError with file:line
// - for a broken row or an unknown format (unless OnBadRow::kSkip);
// - for a token id at or beyond `model_vocab_size` (0: not checked);
// - for a row that is too long under Overlength::kError.
// Throws UserError when spec.eos_token or spec.tool_format does not fit the tokenizer, also if the rows are stored.
// Also throws UserError when nothing is left to train.
Datasets load_datasets(const DataSpec& spec, const Tokenizer& tokenizer, int64_t model_vocab_size);

}  // namespace fettle
