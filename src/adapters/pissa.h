// Defines PiSSA's start of an adapter: the leading singular vectors of the weight it stands beside.
// Source: Meng et al. 2024; the subspace by power iteration from a random start (Halko et al. 2011).
#pragma once

#include "adapters/lora.h"
#include "base/arrays/host_array.h"

namespace fettle {

// For each layer an orthonormal basis_LOQ and projected_LQI = basis^T W, whose product is about the best of rank Q.
struct LeadingSubspace {
  Tensor basis_LOQ, projected_LQI;  // f32
};
// weight [L, out.., in], or [L, in, out..] when fan_in_fan_out. Singular values that lie close together beyond Q are
// told apart only after many `iterations`.
LeadingSubspace leading_subspace(const Tensor& weight, bool fan_in_fan_out, int64_t width, int64_t iterations);

// The stacked LoRA pair whose scale * B A has the leading `rank` singular values and vectors within the subspace, split
// evenly between A and B.
struct LoraStart {
  HostArray a_LRI, b_LOR;  // f32
};
LoraStart principal_lora_pair(const HostArray& basis_LOQ, const HostArray& projected_LQI, int64_t rank, double scale);

// weight - scale * B A of the LoRA pair that training starts from, on the layers that have one; in f32, returned in the
// weight's dtype. weight [L, out.., in], or [L, in, out..] with options.fan_in_fan_out; a [L, r, in], b [L, out.., r],
// f32. One layer at a time.
Tensor without_start(const Tensor& weight, const Tensor& a, const Tensor& b, const LoraOptions& options);

}  // namespace fettle
