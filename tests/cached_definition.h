// Defines attention to a cache in double precision, from its definition: a softmax over the keys that a query sees.
// Also defines expect_definition, which compares a kernel with it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "base/arrays/host_array.h"
#include "base/arrays/trial_numbers.h"
#include "block_tasks.h"
#include "kernels/cpu/threads.h"

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

// Expects that `attended` computes these values with each instruction set of this machine, and the same bits on one
// thread and on three.
inline void expect_definition(const std::vector<double>& wanted, DType dtype,
                              const std::function<HostArray(const BlockOps&, const ParallelFor&)>& attended) {
  const double bound = dtype == DType::kF32 ? 2e-6 : 6e-3;  // bf16: weights and results are rounded, by up to 2e-3
  for (const BlockOps* ops : usable_block_ops(dtype)) {
    SCOPED_TRACE(fmt::format("{} {}", hf_name(dtype), ops->name));
    const HostArray got = attended(*ops, on_one_thread), again = attended(*ops, on_three_threads);
    EXPECT_LT(relative_distance(doubles(got), wanted), bound);
    EXPECT_EQ(std::memcmp(got.data(), again.data(), got.shape().bytes()), 0)
        << "the result depends on the number of threads";
  }
}

}  // namespace fettle::cpu
