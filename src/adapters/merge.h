// Defines the merge of an adapter into the weights it stands beside, as a graph function.
#pragma once

#include <functional>
#include <vector>

#include "adapters/lora.h"

namespace fettle {

// The least square of a norm that DoRA divides by: an output whose weights are all zero stays zero.
inline constexpr double kLeastSquare = 1e-30;

// Of all layers: lora_A [L, r, in], lora_B [L, out.., r], magnitude [L, out..] (null without DoRA); f32.
struct LoraParts {
  Tensor a, b, magnitude;
};

// weight + scale B A on the layers that have pairs, outputs brought to the magnitudes if there are; in f32, returned in
// the weight's dtype. weight [L, out.., in], or [L, in, out] with options.fan_in_fan_out. One layer at a time.
Tensor merged_weight(const Tensor& weight, const LoraParts& parts, const LoraOptions& options, double scale);

// The same of all experts: weight [L, E, out, in], a [L, E, r, in], b [L, out, r, E].
Tensor merged_experts(const Tensor& weight, const Tensor& a, const Tensor& b, double scale);

// DoRA's magnitudes at the start: the norms of a weight over its inputs, f32 [L, out..]. `weight_of` makes a layer's
// weight of its slices of `stacks`.
Tensor row_norms(const std::vector<Tensor>& stacks, const std::function<Tensor(const std::vector<Tensor>&)>& weight_of,
                 bool fan_in_fan_out);

}  // namespace fettle
