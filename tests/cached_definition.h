// Defines attention to a cache in double precision, from its definition: a softmax over the keys that a query sees.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/arrays/trial_numbers.h"

namespace fettle::cpu {

// The sizes and options of attention to a cache (kernels/cpu/attention/attention.h).
struct CacheOptions {
  int64_t keys, heads, key_heads, width;
  int64_t window, chunk;  // 0: none
  double scale, softcap;  // softcap 0: none
  const float* slopes;    // one per head; null: none
};

// Returns the options of a test's case and of the problem that the case gives to the kernel.
template <typename Case, typename Problem>
CacheOptions cache_options(const Case& of, const Problem& problem) {
  return {of.keys, of.heads, of.key_heads, of.width, of.window, of.chunk, problem.scale, of.softcap, problem.slopes};
}

// Returns the attention of q [B, T, heads, width] to k and v [B, keys, key_heads, width]. Row b's queries are at the
// positions first[b], first[b] + 1, ...
inline std::vector<double> attention_to_cache(const CacheOptions& s, const HostArray& queries, const HostArray& keys,
                                              const HostArray& values, const std::vector<int64_t>& first) {
  const std::vector<double> q = doubles(queries), k = doubles(keys), v = doubles(values);
  const auto rows = static_cast<int64_t>(first.size());
  const auto all = static_cast<int64_t>(q.size()) / s.width, row_queries = all / rows;
  std::vector<double> out(q.size());
  for (int64_t i = 0; i < all; ++i) {
    const int64_t row = i / row_queries, head = i % s.heads;
    const int64_t position = first[static_cast<size_t>(row)] + i % row_queries / s.heads;
    double sum = 0;
    for (int64_t key = 0; key <= position; ++key) {
      if (s.window > 0 && position - key >= s.window) continue;
      if (s.chunk > 0 && position / s.chunk != key / s.chunk) continue;
      const int64_t at = ((row * s.keys + key) * s.key_heads + head / (s.heads / s.key_heads)) * s.width;
      double score = 0;
      for (int64_t h = 0; h < s.width; ++h) score += s.scale * q[i * s.width + h] * k[at + h];
      if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
      if (s.slopes != nullptr) score -= s.slopes[head] * static_cast<double>(position - key);
      sum += std::exp(score);
      for (int64_t h = 0; h < s.width; ++h) out[i * s.width + h] += std::exp(score) * v[at + h];
    }
    for (int64_t h = 0; h < s.width; ++h) out[i * s.width + h] /= sum;
  }
  return out;
}

}  // namespace fettle::cpu
