// Defines ClassTexts and LabelWord: what a row of stage cls shows the model, and the label beside it as the row has it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/read/dataset_info.h"

namespace fettle {

// A text, a pair of texts, or a conversation.
struct ClassTexts {
  std::string first;
  std::optional<std::string> second;
  std::vector<Message> messages;  // when there are any, the texts are empty
  std::string tools_json;
};

// By the source's columns `text`, `text_pair` or `messages` where it names them; else by those that the row has:
// messages or conversations; a pair as sentence1 and sentence2, premise and hypothesis, question and sentence, ...; or
// text, sentence, content, instruction (with input), prompt, ... Throws BadRow.
ClassTexts read_class_texts(const nlohmann::ordered_json& row, const DataSource& source);

// The row's column of the label: the source's `label`, else the first of label, labels, class, category, score that the
// row has; "" when it has none.
std::string label_column(const nlohmann::ordered_json& row, const DataSource& source);

// Whether the file of "file:line" is of cells, csv or tsv: all values are texts, and what is written as a number is
// one. In other files a text is a name.
bool has_cells(const std::string& where);

// The value of that column, a text that holds a JSON array as that array, a cell without the spaces around it; null
// when the row has no label: without the column, or with null, an empty text, or -100 in it (Hugging Face's value for
// what is not trained).
nlohmann::ordered_json label_value(const nlohmann::ordered_json& row, const DataSource& source, bool cell);

// One value of a label.
struct LabelWord {
  enum class Kind { kInteger, kReal, kName };
  Kind kind = Kind::kName;
  bool quoted = false;  // it is a text, or a cell's
  double number = 0;    // kInteger, kReal
  std::string text;     // as it is written
};
// `cell`: a text that is written as a number is one. Throws BadRow for what is no text, number, true or false.
LabelWord label_word(const nlohmann::ordered_json& value, bool cell);

}  // namespace fettle
