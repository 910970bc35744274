// Defines the table row "cudnn_attention": the composite "attention" (models/blocks/attention.h) by the fused attention
// of NVIDIA's library cuDNN. XLA's plugin calls cuDNN for custom calls of certain names.
//
// Sources of the calls' form: JAX, jax/_src/cudnn/fused_attention_stablehlo.py, and XLA,
// xla/service/gpu/transforms/cudnn_custom_call_compiler.cc.
#pragma once

#include <optional>

#include "graph/composite.h"

namespace fettle::gpu {

// Returns the kernel for bf16 and f16 if H is a multiple of 8 up to 128, T is even and at most 8,192, there are no soft
// caps and no slopes, and read_attention() (attention_site.h) accepts the site. Otherwise returns nullopt. cuDNN gets
// documents and windows as a bias [B, 1, T, T].
std::optional<Kernel> cudnn_attention(const CompositeSite& site);

// Returns the bias [B, 1, T, T] in `dtype`. The bias is 0 where query t (dim 2) and key s (dim 3) are in the same
// document and s > t - window. Elsewhere the bias is a number far below every score. `window` is an i32 scalar, or
// null. The causal mask is not included.
Tensor attention_bias(const Tensor& segments_BT, const Tensor& window, DType dtype);

inline constexpr const char* kCudnnAttention = "cudnn_attention/1";

}  // namespace fettle::gpu
