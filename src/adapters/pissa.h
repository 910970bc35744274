// Defines PiSSA's initial adapter, which consists of the leading singular vectors of the base weight. Source: Meng et
// al. 2024. Power iteration from a random start finds the subspace (Halko et al. 2011).
#pragma once

#include "adapters/lora.h"
#include "base/arrays/host_array.h"

namespace fettle {

// For each layer with the weight W [O, I], an orthonormal basis [O, Q] and basis^T W [Q, I]. Their product is close to
// the best approximation of W by a matrix of rank Q.
struct LeadingSubspace {
  Tensor basis_LOQ, projected_LQI;  // f32
};
// `weight` is [L, out.., in], or [L, in, out..] if `fan_in_fan_out`. `width` is Q. More `iterations` are needed if the
// Q-th and the (Q + 1)-th singular value are close to each other.
LeadingSubspace leading_subspace(const Tensor& weight, bool fan_in_fan_out, int64_t width, int64_t iterations);

// The initial LoRA weights of all layers. scale * B A is the part of basis * projected that belongs to its `rank`
// largest singular values. A and B each contain the square root of the singular values as a factor.
struct LoraStart {
  HostArray a_LRI, b_LOR;  // f32
};
LoraStart principal_lora(const HostArray& basis_LOQ, const HostArray& projected_LQI, int64_t rank, double scale);

// Returns weight - scale * B A for the initial LoRA weights, on the layers that have LoRA weights. Computes in f32, one
// layer at a time, and returns the weight's dtype. `weight` is [L, out.., in], or [L, in, out..] with
// options.fan_in_fan_out; a [L, r, in] and b [L, out.., r] are f32.
Tensor without_start(const Tensor& weight, const Tensor& a, const Tensor& b, const LoraOptions& options);

}  // namespace fettle
