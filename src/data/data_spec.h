// Defines DataSpec: which rows are read, and how each row becomes examples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/local_time.h"
#include "data/chat/chat.h"
#include "data/classes/label_set.h"
#include "data/read/dataset_info.h"
#include "data/row_readers.h"
#include "hub/settings.h"

namespace fettle {

enum class Overlength { kCut, kDrop, kError };  // what happens to a row of more than cutoff_len tokens
enum class OnBadRow { kError, kSkip };
// Ends a message about a bad row with OnBadRow::kError.
inline constexpr const char* kSkipHint = "\n(if only some rows are like this, `on_bad_row: skip` leaves them out)";
enum class Mix { kConcat, kInterleaveUnder, kInterleaveOver, kInterleaveOnce };  // described at mix_sets (mix.h)

struct DataSpec {
  RowKind rows = RowKind::kConversations;

  // Where the rows are. A set is anything that find_source (read/dataset_info.h) accepts, such as a file or a folder.
  std::vector<std::string> sets;
  std::vector<std::string> eval_sets;
  std::filesystem::path dataset_dir = "data";  // folder of dataset_info.json
  std::optional<HubSettings> hub;              // the hub of sets that are not on this machine; none: fetch nothing
  std::optional<int64_t> max_samples;          // largest number of rows to take from each set
  OnBadRow on_bad_row = OnBadRow::kError;
  TextRows sample_by = TextRows::kLine;  // rows of text files, unless the set's entry says otherwise

  // How a row becomes tokens.
  std::string template_name;             // a built-in chat template, or a template's text; "": the model's own
  std::string eos_token;                 // the tokenizer must have it as its eos_token; "": not checked
  std::string tool_format;               // the tool format that the model's template must have; "": any
  Thinking thinking;                     // how the template renders thoughts
  std::string default_system;            // the system message of conversations that have none
  LocalTime started = LocalTime::now();  // the time that strftime_now of a chat template gives
  int64_t cutoff_len = 2048;             // largest number of tokens of an example
  Overlength overlength = Overlength::kCut;
  // Replace {{NAME}} and {{AUTHOR}} in the rows' texts: the first text in rows with the tag zh, the last in other rows.
  std::vector<std::string> self_name, self_author;
  bool plain_text_rows = false;  // Sample::plain rows do not use the chat template
  bool train_on_prompt = false;
  bool mask_history = false;       // trains only the last assistant turn
  std::optional<LabelSet> labels;  // set exactly when row_reader(rows).labelled()
  bool labels_optional = false;    // true: rows without a label are kept; false: they are bad rows

  // Which rows are taken, and in what order.
  bool remove_duplicates = false;  // leaves out a row that has the same tokens and labels as an earlier row
  double val_size = 0;  // rows held out for evaluation: a share of the rows if below 1, else a number of rows
  Mix mix = Mix::kConcat;
  std::vector<double> mix_weights;  // one for each of `sets`, or none
  uint64_t seed = 42;

  std::string cache;  // the folder of token stores; "": the default folder; "off": no stores are kept

  TextRows text_rows(const DataSource& source) const { return source.sample_by.value_or(sample_by); }
  // Returns the largest number of rows to read from the set. If rows are chosen among all rows of the set, all are
  // read.
  std::optional<int64_t> most_rows(const DataSource& source) const {
    return source.num_samples || source.first_share ? std::nullopt : max_samples;
  }
};

}  // namespace fettle
