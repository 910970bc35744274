// Defines what a row becomes: messages, then one Example of token ids with labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

constexpr int32_t kIgnore = -100;  // label of a token that is not trained (Hugging Face's value)

// Of preference training: which reply of a pair this is, or whether the reply is a good one.
enum class Preference : uint8_t { kNone, kChosen, kRejected };

// Token ids and labels of one row, of equal length; labels are not shifted. Of stage cls no token has a label: what the
// row is taught are its classes.
struct Example {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::string source;  // "file:line", for messages
  Preference preference = Preference::kNone;
  std::vector<float> classes =
      {};  // of stage cls: the label's number; 0 or 1 for each label; or numbers of a regression
  std::vector<uint8_t> second_text = {};  // 1 for tokens of a pair's second text; empty when none is

  int64_t length() const { return static_cast<int64_t>(input_ids.size()); }
  // Tokens whose prediction is trained: labels other than kIgnore, the first position excepted; 1 for a row with
  // classes.
  int64_t trained_tokens() const;
};

}  // namespace fettle
