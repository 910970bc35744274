// Defines the table rows "cuda_attention" and "rocm_attention": the composite "attention" (models/blocks/attention.h)
// on GPUs, in Triton's IR (attention_ir.h), which the vendor's plugin compiles.
#pragma once

#include <optional>

#include "graph/composite.h"

namespace fettle::gpu {

// Each function returns the kernel for bf16, f16 and f32 with H up to 256. Returns nullopt for other dtypes and widths,
// for T above 2^24, for more than 65535 rows or heads, and when read_attention() (attention_site.h) returns nullopt.
std::optional<Kernel> cuda_attention(const CompositeSite& site);
std::optional<Kernel> rocm_attention(const CompositeSite& site);

// Returns true for 16-bit floats. For f32, XLA's own products are expected to be faster; nobody has measured this.
bool attention_pays(const CompositeSite& site);

inline constexpr const char* kCudaAttention = "cuda_attention/1";
inline constexpr const char* kRocmAttention = "rocm_attention/1";
// The name under which the plugins compile Triton's IR.
inline constexpr const char* kTritonTarget = "__gpu$xla.gpu.triton";

}  // namespace fettle::gpu
