// Defines TokenChance: how likely the model found a token and the others at its place.
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
  std::vector<std::pair<std::string, double>> top;  // the likeliest tokens, likeliest first
};

// Returns the chance of token `drawn`, which follows `before`, with the `top` likeliest ones. `logits` are finite.
TokenChance token_chance(std::span<const float> logits, std::span<const int32_t> before, int32_t drawn, int top,
                         const Tokenizer& tokenizer);

}  // namespace fettle
