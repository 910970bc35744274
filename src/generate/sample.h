// Defines sample, which draws the id of the next token from the logits, on the host.
//
// The steps have Hugging Face's order: banned ids, temperature, top-k, top-p, softmax, one draw. The random numbers are
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
  std::vector<int32_t> banned = {};  // ids that are never drawn
  uint64_t seed = 0;

  bool greedy() const { return !do_sample || temperature == 0; }
};

// A token that may be drawn. The probabilities of all candidates sum to 1.
struct Candidate {
  int32_t id;
  double probability;
};

// Returns the tokens that a draw chooses from, the most likely token first; equally likely tokens are sorted by id.
// If options.greedy() is true, returns only one token. Throws UserError when a logit is NaN or the largest one is not
// finite.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options);

// Returns the token that is drawn for position `index` of a sequence.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

}  // namespace fettle
