// Defines sample, which draws the id of the next token from the logits, on the host.
//
// The steps have vLLM's order: penalties, temperature, min-p, top-k, top-p, softmax, one draw. The random numbers are
// counter-based: the number for position i with seed s is the same on every platform and does not depend on earlier
// draws.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fettle {

// The error for logits among which is NaN.
inline constexpr const char* kBrokenLogits =
    "the model's logits are not numbers: its weights are broken, or too large for bf16 or f16";

struct SamplingOptions {
  bool do_sample = true;   // false: the token with the largest logit; among equal logits, the smallest id
  double temperature = 1;  // logits are divided by the temperature; 0: same as do_sample = false
  int64_t top_k = 0;       // keeps the tokens whose logits are at least the k-th largest; 0: keeps all
  double top_p = 1;        // keeps the most likely tokens until their total probability is at least top_p; 1: keeps all
  double min_p = 0;        // keeps the tokens that are at least min_p times as likely as the most likely one; 0: all
  // Penalties on tokens that the sequence already has. The logit of a token of the prompt or the reply is divided by
  // repetition_penalty if it is positive, and multiplied otherwise. Then presence_penalty is subtracted once from the
  // logit of a token of the reply, and frequency_penalty as often as the reply has the token.
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;

  bool greedy() const { return !do_sample || temperature == 0; }
};

// The tokens before the one that is drawn.
struct TokensBefore {
  std::span<const int32_t> prompt = {}, reply = {};
};

// A token that may be drawn. The probabilities of all candidates sum to 1.
struct Candidate {
  int32_t id;
  double probability;
};

// Returns the tokens that a draw chooses from, the most likely token first; equally likely tokens are sorted by id.
// If options.greedy() is true, returns only one token. Throws UserError when a logit is NaN or the largest one is not
// finite.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options,
                                  const TokensBefore& before = {});

// Returns the token that is drawn for position `index` of a sequence.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index,
               const TokensBefore& before = {});

}  // namespace fettle
