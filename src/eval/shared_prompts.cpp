#include "eval/shared_prompts.h"

#include <algorithm>

namespace fettle {
namespace {

// Returns the number of tokens before the choice, without the last of them.
int64_t prompt_tokens(const Example& example) {
  const auto trained = std::ranges::find_if(example.labels, [](int32_t label) { return label != kIgnore; });
  return trained - example.labels.begin() - 1;
}

// Returns how many of these tokens are the same in all `examples`.
int64_t shared_tokens(const std::vector<Example>& examples) {
  const std::vector<int32_t>& first = examples[0].input_ids;
  auto shared = std::ssize(first);
  for (const Example& example : examples)
    shared =
        std::min({shared, std::ranges::mismatch(first, example.input_ids).in1 - first.begin(), prompt_tokens(example)});
  return shared;
}

Example part(const Example& example, int64_t from, int64_t to) {
  Example out{.source = example.source};
  out.input_ids.assign(example.input_ids.begin() + from, example.input_ids.begin() + to);
  out.labels.assign(example.labels.begin() + from, example.labels.begin() + to);
  return out;
}

}  // namespace

std::vector<Example> with_shared_prompts(const std::vector<std::vector<Example>>& choices, int64_t longest) {
  std::vector<Example> rows;
  int64_t separate = 0, together = 0;
  for (const std::vector<Example>& question : choices) {
    const int64_t of_all = shared_tokens(question);
    int64_t used = longest;  // tokens of the last prompt and its continuations
    for (const Example& choice : question) {
      const auto length = std::ssize(choice.input_ids);
      // If a question was cut to fit, its choices may begin with different tokens. Then each has a prompt of its own.
      const int64_t shared = of_all > 0 ? of_all : prompt_tokens(choice);
      if (shared <= 0) return {};
      separate += length;
      if (of_all <= 0 || used + length - shared > longest) {
        rows.push_back(part(choice, 0, shared));
        used = shared;
        together += shared;
      }
      rows.push_back(part(choice, shared, length));
      used += length - shared;
      together += length - shared;
    }
  }
  return 2 * together <= separate ? rows : std::vector<Example>();
}

}  // namespace fettle
