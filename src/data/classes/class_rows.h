// Defines ClassTexts and LabelWord: the texts of a labelled row, and its label as the row spells it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/read/dataset_info.h"

namespace fettle {

// One text, two texts, or a conversation.
struct ClassTexts {
  std::string first;
  std::optional<std::string> second;
  std::vector<Message> messages;  // either this or the texts are empty
  std::string tools_json;
};

// Reads the source's columns `text`, `text_pair` or `messages` if the source names them, else the first of these that
// the row has: messages or conversations; two texts as sentence1 and sentence2, premise and hypothesis, question and
// sentence, ...; or text, sentence, content, instruction (with input), prompt, ... Throws BadRow.
ClassTexts read_class_texts(const nlohmann::ordered_json& row, const DataSource& source);

// Returns the label column: the one that the source names as `label`, else the first of label, labels, class, category,
// score that the row has. Returns "" when the row has none of them.
std::string label_column(const nlohmann::ordered_json& row, const DataSource& source);

// Returns whether the file of "file:line" is csv or tsv. Its cells have no types, so a cell that is spelled like a
// number is a number. In other files a text is a name.
bool has_cells(const std::string& where);

// Returns the value of the label column. A text that is a JSON array becomes that array; spaces around a cell are
// removed. Null when the row has no label: the column is absent, null, empty, or -100 (Hugging Face's value for what is
// not trained).
nlohmann::ordered_json label_value(const nlohmann::ordered_json& row, const DataSource& source, bool cell);

// One value of a label.
struct LabelWord {
  enum class Kind { kInteger, kReal, kName };
  Kind kind = Kind::kName;
  bool quoted = false;  // the value is a text or a cell
  double number = 0;    // kInteger, kReal
  std::string text;     // as the row spells it
};
// `cell`: a text that is spelled like a number is a number. Throws BadRow for a value that is not a text, a number,
// true or false.
LabelWord label_word(const nlohmann::ordered_json& value, bool cell);

}  // namespace fettle
