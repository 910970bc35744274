// Defines sampling: from the logits of the next token to the token, on the host.
//
// The order is Hugging Face's: banned ids, temperature, top-k, top-p, softmax, one draw. The draw is counter-based, so
// token i of seed s is the same on every platform and whatever was drawn before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fettle {

struct SamplingOptions {
  bool do_sample = true;             // false: the largest logit, the smallest id among equal ones
  double temperature = 1;            // logits are divided by it; 0 is as do_sample false
  int64_t top_k = 0;                 // the k largest logits, with all that equal the k-th; 0: all
  double top_p = 1;                  // the fewest likeliest tokens that together have more than this; 1: all
  std::vector<int32_t> banned = {};  // ids never taken
  uint64_t seed = 0;

  bool greedy() const { return !do_sample || temperature == 0; }
};

// A token that may be drawn. Probabilities of all candidates add up to 1.
struct Candidate {
  int32_t id;
  double probability;
};

// What a draw chooses from, likeliest first, equal ones by id; with greedy options the one token.
// Throws UserError when the logits hold no finite largest value: the model is broken.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options);

// The token at place `index` of a sequence.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

// In [0, 1), 53 bits, a pure function of both words.
double uniform(uint64_t seed, uint64_t index);

}  // namespace fettle
