// Defines ClassTexts and LabelWord: the texts of a labelled row, and its label as it is written in the row.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/conversation.h"
#include "data/read/dataset_info.h"

namespace fettle {

// What a labelled row has besides its label: one text, two texts, or a conversation.
struct ClassTexts {
  std::string first;
  std::optional<std::string> second;
  Conversation conversation;  // without messages if the row has texts instead
};

// Reads the texts of a row. If the source names columns (`text` and `text_pair`, `messages`, or `prompt` and `query`),
// reads these columns. Otherwise, reads the first of these that the row has:
// - messages or conversations;
// - two texts, such as sentence1 and sentence2, or premise and hypothesis;
// - one text, such as text, sentence, content, or instruction with input.
// Throws BadRow.
ClassTexts read_class_texts(const nlohmann::ordered_json& row, const DataSource& source);

// Returns the name of the label column. This is the column that the source names as `label`. If the source names none,
// it is the first of label, labels, class, category and score that the row has. Returns "" when the row has no such
// column.
std::string label_column(const nlohmann::ordered_json& row, const DataSource& source);

// Returns whether the file in `where` (a row_place) is csv or tsv. Cells of such files have no types: a cell that is
// spelled like a number counts as a number. In other files, a string is always a name.
bool has_cells(const std::string& where);

// Returns the value of the label column. A text that is a JSON array or a list of Python becomes an array. If `cell` is
// true (see has_cells), spaces around the text are removed. Returns null when the row has no label: the column is
// absent, null, empty, or -100 (Hugging Face's libraries do not train this value). Throws BadRow for a text that looks
// like a list but cannot be read.
nlohmann::ordered_json label_value(const nlohmann::ordered_json& row, const DataSource& source, bool cell);

// One name or number in a label.
struct LabelWord {
  enum class Kind { kInteger, kReal, kName };
  Kind kind = Kind::kName;
  bool quoted = false;  // true: the value is a string, as all cells of csv and tsv files are
  double number = 0;    // the number of kInteger and kReal
  std::string text;     // the word as the row spells it
};
// Reads a name or number. If `cell` is true, a text that is spelled like a number is a number. Throws BadRow for a
// value that is not a text, a number, true or false.
LabelWord label_word(const nlohmann::ordered_json& value, bool cell);

}  // namespace fettle
