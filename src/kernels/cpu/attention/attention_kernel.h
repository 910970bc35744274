// Defines the table row "cpu_attention": the composite "attention" (models/blocks/attention.h) on the CPU through the
// FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Returns the kernel; nullopt for dtypes other than f32 and bf16, and when read_attention() (attention_site.h) returns
// nullopt.
std::optional<Kernel> attention_kernel(const CompositeSite& site);
// Returns true for rows of 256 positions or more on CPUs with AVX2. The kernel is not faster for shorter rows or
// without AVX2 (benchmarks/attention_202611.md).
bool attention_pays(const CompositeSite& site);

inline constexpr const char* kAttentionKernel = "cpu_attention/2";
// Names of the handlers. They include a version, so that programs in the compile cache never call another version.
inline constexpr const char* kAttentionTarget = "fettle_cpu_attention_1";
inline constexpr const char* kAttentionGradientTarget = "fettle_cpu_attention_gradient_2";
void register_attention(const Plugin& plugin);

}  // namespace fettle::cpu
