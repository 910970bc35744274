#include "inspect/example_text.h"

#include <fmt/format.h>

#include <string_view>

namespace fettle {
namespace {

std::string_view word(Preference preference) {
  return preference == Preference::kChosen ? "chosen" : preference == Preference::kRejected ? "rejected" : "";
}

}  // namespace

std::string format_example(const Example& example, const Tokenizer& tokenizer, bool colour) {
  std::string out;
  for (size_t i = 0; i < example.input_ids.size();) {
    const bool trained = example.labels[i] != kIgnore;
    const auto weight_at = [&](size_t at) { return trained && !example.weights.empty() ? example.weights[at] : 1; };
    const float weight = weight_at(i);
    std::vector<int32_t> ids;
    for (; i < example.input_ids.size() && (example.labels[i] != kIgnore) == trained && weight_at(i) == weight; ++i)
      ids.push_back(example.input_ids[i]);
    std::string text;
    for (char c : tokenizer.decode(ids, false)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n')
        text += "⏎\n";
      else if (c != '\t' && (byte < 0x20 || byte == 0x7f))
        text += fmt::format("\\x{:02x}", byte);  // the text's control characters must not reach the terminal
      else
        text += c;
    }
    if (weight != 1) text = fmt::format("×{}:{}", weight, text);
    if (!trained)
      out += text;
    else if (!colour)
      out += "⟦" + text + "⟧";
    else
      out += "\x1b[1;32m" + text + "\x1b[0m";
  }
  return out;
}

std::string format_sample(const Example& example, const std::optional<LabelSet>& labels, const Tokenizer& tokenizer,
                          bool colour) {
  const std::string text = format_example(example, tokenizer, colour);
  if (labels)
    return fmt::format("{}: {} tokens, label {}\n{}\n", example.source, example.length(),
                       example.classes.empty() ? "missing" : labels->describe(example.classes), text);
  const std::string_view preference = word(example.preference);
  return fmt::format("{}{}{}: {} tokens, {} trained ({})\n{}\n", example.source, preference.empty() ? "" : ", ",
                     preference, example.length(), example.trained_tokens(), colour ? "in colour" : "between ⟦ and ⟧",
                     text);
}

nlohmann::ordered_json samples_json(const Examples& examples, int64_t count, const std::optional<LabelSet>& labels,
                                    const Tokenizer& tokenizer) {
  auto samples = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < count; ++i) {
    const Example example = examples[i];
    samples.push_back({{"source", example.source},
                       {"text", format_example(example, tokenizer, false)},
                       {"input_ids", example.input_ids},
                       {"labels", example.labels}});
    if (!example.weights.empty()) samples.back()["weights"] = example.weights;
    if (labels && !example.classes.empty()) samples.back()["label"] = labels->describe(example.classes);
    if (example.preference != Preference::kNone) samples.back()["preference"] = word(example.preference);
  }
  return samples;
}

}  // namespace fettle
