// Defines TokenChance: the log-probability of a drawn token, and of the most likely tokens at the same position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

// What a token adds to a text. A token may have only a part of a character's bytes. Then `text` has U+FFFD instead of
// this character, and `bytes` has the token's own bytes.
struct TokenText {
  std::string text, bytes;

  TokenText(std::string text) : text(std::move(text)), bytes(this->text) {}  // NOLINT: implicit
  TokenText(const char* text) : TokenText(std::string(text)) {}              // NOLINT
  TokenText(std::string text, std::string bytes) : text(std::move(text)), bytes(std::move(bytes)) {}
};

struct TokenChance {
  TokenText token;
  double logprob;                                 // in the model's own distribution, before temperature, top-k, top-p
  std::vector<std::pair<TokenText, double>> top;  // the most likely tokens, the most likely first
};

// Returns the log-probabilities of the token `drawn`, which follows the tokens `before`, and of the `top` most likely
// tokens. No logit may be NaN, and the largest must be finite.
TokenChance token_chance(std::span<const float> logits, std::span<const int32_t> before, int32_t drawn, int top,
                         const Tokenizer& tokenizer);

}  // namespace fettle
