#include "eval/shared_prompts.h"

#include <algorithm>

namespace fettle {
namespace {

// Returns how many tokens at the start of all `examples` are the same. The last token before a choice does not count.
int64_t shared_tokens(const std::vector<Example>& examples) {
  const std::vector<int32_t>& first = examples[0].input_ids;
  auto shared = std::ssize(first);
  for (const Example& example : examples) {
    const auto same = std::ranges::mismatch(first, example.input_ids).in1 - first.begin();
    const auto trained = std::ranges::find_if(example.labels, [](int32_t label) { return label != kIgnore; });
    shared = std::min({shared, same, trained - example.labels.begin() - 1});
  }
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
    const int64_t shared = shared_tokens(question);
    if (shared <= 0) return {};
    int64_t used = longest;  // tokens of the last prompt and its continuations
    for (const Example& choice : question) {
      const auto length = std::ssize(choice.input_ids);
      separate += length;
      if (used + length - shared > longest) {
        rows.push_back(part(question[0], 0, shared));
        used = shared;
        together += shared;
      }
      rows.push_back(part(choice, shared, length));
      used += length - shared;
      together += length - shared;
    }
  }
  return 5 * together <= 4 * separate ? rows : std::vector<Example>();
}

}  // namespace fettle
