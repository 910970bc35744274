// Defines Example: the token ids and labels that a row becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

constexpr int32_t kIgnore = -100;  // the label of a token that is not trained (Hugging Face's value)

// Which reply of a preference pair the example has. For a rated reply: kChosen means good, kRejected means bad.
enum class Preference : uint8_t { kNone, kChosen, kRejected };

// Token ids and labels of equal length. Labels are not shifted: labels[i] is input_ids[i], or kIgnore. In an example of
// a labelled row, all labels are kIgnore, because `classes` is trained instead.
struct Example {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;
  std::string source;  // "file:line", for messages
  Preference preference = Preference::kNone;
  // For labelled rows: the label's number, a 0 or 1 for each label, or the numbers of a regression.
  std::vector<float> classes = {};
  std::vector<uint8_t> second_text = {};  // 1 for tokens of the second text; empty if there is only one text
  // The factor on the loss of each token whose label is not kIgnore; empty: 1 for all tokens.
  std::vector<float> weights = {};

  int64_t length() const { return static_cast<int64_t>(input_ids.size()); }
  // Returns how many labels are not kIgnore. Does not count the first label, because no token predicts the first token.
  // Returns 1 for an example with classes.
  int64_t trained_tokens() const;
};

}  // namespace fettle
