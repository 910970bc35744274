// Defines the table row "cpu_attention": the composite "attention" (models/blocks/attention.h) on the CPU through the
// FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel for f32 and bf16. The length must not be split over devices, and query and key heads must be split
// in the same way; otherwise returns nullopt.
std::optional<Kernel> attention_kernel(const CompositeSite& site);
// Returns true for rows of 256 positions or more on CPUs with AVX2. The kernel is not faster for shorter rows or
// without AVX2 (benchmarks/attention_202611.md).
bool attention_pays(const CompositeSite& site);

inline constexpr const char* kAttentionKernel = "cpu_attention/1";
// Names of the handlers. They include a version, so that programs in the compile cache never call another version.
inline constexpr const char* kAttentionTarget = "fettle_cpu_attention_1";
inline constexpr const char* kAttentionGradientTarget = "fettle_cpu_attention_gradient_1";
void register_attention(const Plugin& plugin);

}  // namespace fettle::cpu
