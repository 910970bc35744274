// Defines what a row becomes: messages, then one Example of token ids with labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

constexpr int32_t kIgnore = -100;  // label of a token that is not trained (Hugging Face's value)

// Of preference training: which reply of a pair this is, or whether the reply is a good one.
enum class Preference : uint8_t { kNone, kChosen, kRejected };

// Token ids and labels of one row, of equal length; labels are not shifted.
struct Example {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::string source;  // "file:line", for messages
  Preference preference = Preference::kNone;

  int64_t length() const { return static_cast<int64_t>(input_ids.size()); }
  // Tokens whose prediction is trained: labels other than kIgnore, the first position excepted.
  int64_t trained_tokens() const;
};

}  // namespace fettle
