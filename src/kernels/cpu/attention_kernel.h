// Defines the row "cpu_attention": the composite "attention" (models/blocks/attention.h) on the CPU through the FFI.
#pragma once

#include <optional>

#include "graph/composite.h"
#include "runtime/vendors/plugin.h"

namespace fettle::cpu {

// Takes f32 and bf16 in which the length is not split over devices, and query and key heads are split alike.
std::optional<Kernel> attention_kernel(const CompositeSite& site);
// Rows of 256 positions and more, on CPUs with AVX2: shorter rows, and plain C++, gain nothing
// (benchmarks/attention_202611.md).
bool attention_pays(const CompositeSite& site);

inline constexpr const char* kAttentionKernel = "cpu_attention/1";
// Names of the handlers, with their version: a program in the compile cache must not meet another one.
inline constexpr const char* kAttentionTarget = "fettle_cpu_attention_1";
inline constexpr const char* kAttentionGradientTarget = "fettle_cpu_attention_gradient_1";
void register_attention(const Plugin& plugin);

}  // namespace fettle::cpu
