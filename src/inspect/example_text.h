// Defines how `fettle data` shows single examples.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/classes/label_set.h"
#include "data/store/examples.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// Formats the text of an example. Special tokens are visible, trained spans are marked, and line ends are shown as ⏎.
// If the tokens of a trained span have a weight other than 1, the span begins with the weight: ⟦×0.5:text⟧.
std::string format_example(const Example& example, const Tokenizer& tokenizer, bool colour);

// Formats one line about the example (its source, its length, and its label or number of trained tokens), followed by
// the text of format_example().
std::string format_sample(const Example& example, const std::optional<LabelSet>& labels, const Tokenizer& tokenizer,
                          bool colour);
// Returns the first `count` examples, each as {source, text, input_ids, labels}, with weights, label and preference if
// the example has them.
nlohmann::ordered_json samples_json(const Examples& examples, int64_t count, const std::optional<LabelSet>& labels,
                                    const Tokenizer& tokenizer);

}  // namespace fettle
