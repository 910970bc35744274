// Defines the table row "cpu_cached_attention": the composite "cached_attention" (models/blocks/attention.h), attention
// of a piece of a prompt, or of the next token of several rows, to a cache, on the CPU through the FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel; nullopt for dtypes other than f32 and bf16, and if the rows and heads of the cache are not split
// over devices in the same way as those of the queries.
std::optional<Kernel> cached_attention_kernel(const CompositeSite& site);
// Returns true on CPUs with AVX2 for one query, the next token, and for 16 queries or more, the shortest piece of a
// prompt (benchmarks/attention_202611.md).
bool cached_attention_pays(const CompositeSite& site);

inline constexpr const char* kCachedAttentionKernel = "cpu_cached_attention/2";
// The handlers' names. They include a version, so that programs in the compile cache never call another version.
inline constexpr const char* kCachedAttentionTarget = "fettle_cpu_cached_attention_2";
inline constexpr const char* kNextAttentionTarget = "fettle_cpu_next_attention_1";
void register_cached_attention(const Plugin& plugin);

}  // namespace fettle::cpu
