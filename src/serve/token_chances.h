// Defines TokenChance: how likely a token was according to the model, and how likely other tokens were at the same
// place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

struct TokenChance {
  std::string text;
  double logprob;                                   // of the model's own distribution, before temperature, top-k, top-p
  std::vector<std::pair<std::string, double>> top;  // the most likely tokens, the most likely first
};

// Returns the chance of token `drawn`, which follows `before`, and of the `top` most likely tokens. `logits` must be
// finite.
TokenChance token_chance(std::span<const float> logits, std::span<const int32_t> before, int32_t drawn, int top,
                         const Tokenizer& tokenizer);

}  // namespace fettle
