#include "serve/token_chances.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fettle {
namespace {

// Returns the text that a token adds. Some tokenizers drop the space of a text's first token, so the token is decoded
// together with the token before it.
std::string added_text(const Tokenizer& tokenizer, std::span<const int32_t> before, int32_t id) {
  if (!before.empty()) {
    const std::string first = tokenizer.decode(before.last(1), false);
    const std::string both = tokenizer.decode(std::vector<int32_t>{before.back(), id}, false);
    if (both.starts_with(first)) return both.substr(first.size());
  }
  return tokenizer.decode(std::vector<int32_t>{id}, false);
}

TokenText added(const Tokenizer& tokenizer, std::span<const int32_t> before, int32_t id) {
  std::string text = added_text(tokenizer, before, id);
  if (!text.empty() && text.find("\ufffd") == std::string::npos) return text;
  return {std::move(text), tokenizer.token_bytes(id)};
}

}  // namespace

TokenChance token_chance(std::span<const float> logits, std::span<const int32_t> before, int32_t drawn, int top,
                         const Tokenizer& tokenizer) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double total = largest + std::log(sum);
  auto logprob = [&](int32_t id) { return logits[static_cast<size_t>(id)] - total; };
  TokenChance out{added(tokenizer, before, drawn), logprob(drawn), {}};
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min(static_cast<std::ptrdiff_t>(top), static_cast<std::ptrdiff_t>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    return std::pair(-logits[static_cast<size_t>(a)], a) < std::pair(-logits[static_cast<size_t>(b)], b);
  });
  for (const int32_t id : std::span(ids).first(static_cast<size_t>(count)))
    out.top.emplace_back(added(tokenizer, before, id), logprob(id));
  return out;
}

}  // namespace fettle
