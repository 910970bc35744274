// Defines the table of row readers. The table has one entry for each kind of rows. An entry has everything that differs
// between the kinds; other code reads it from the table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace fettle {

struct DataSource;
struct Sample;

// What a row of the data is.
enum class RowKind {
  kTexts,            // a text; a text longer than cutoff_len becomes several examples
  kConversations,    // a conversation, a prompt with its completion, or a text
  kLabelled,         // a text, two texts or a conversation, with a label
  kPreferencePairs,  // a prompt with a chosen and a rejected reply
  kRatedReplies,     // a conversation whose last reply is rated good or bad
};

struct RowReader {
  RowKind kind;
  std::string_view name;  // in words, for messages: "preference pairs"
  // Reads a row, or throws BadRow. Null: the rows have labels (DataSpec::labels), and RowTokeniser reads them with
  // class_rows.h.
  Sample (*read)(const nlohmann::ordered_json& row, const DataSource& source);
  // Returns whether the row has the columns of this kind. Null: rows of this kind may have any of many formats.
  bool (*has_columns)(const nlohmann::ordered_json& row, const DataSource& source) = nullptr;
  // The number of consecutive examples that stay together: 2 for a preference pair (chosen, then rejected).
  int64_t examples_per_row = 1;
  bool conversations = true;  // rows may be conversations, which a chat template renders
  bool ranked = false;        // reads data sets whose rows are preference pairs (DataSource::ranking)

  bool labelled() const { return read == nullptr; }
};

const RowReader& row_reader(RowKind kind);
std::span<const RowReader> row_readers();  // the entries of the table, in the order of RowKind

}  // namespace fettle
