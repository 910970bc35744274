// Defines the table row "cpu_cached_attention": the composite "cached_attention" (models/blocks/attention.h), attention
// of a piece of a prompt to a cache, on the CPU through the FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel; nullopt for dtypes other than f32 and bf16, and if the heads of the cache are not split over
// devices in the same way as the heads of the queries.
std::optional<Kernel> cached_attention_kernel(const CompositeSite& site);
// Returns true for 16 queries or more, the shortest piece of a prompt, on CPUs with AVX2
// (benchmarks/attention_202611.md). Fewer queries were not measured.
bool cached_attention_pays(const CompositeSite& site);

inline constexpr const char* kCachedAttentionKernel = "cpu_cached_attention/1";
// The handler's name. It includes a version, so that programs in the compile cache never call another version.
inline constexpr const char* kCachedAttentionTarget = "fettle_cpu_cached_attention_1";
void register_cached_attention(const Plugin& plugin);

}  // namespace fettle::cpu
