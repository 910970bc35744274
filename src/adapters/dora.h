// Defines DoRA's magnitudes, to which the outputs of W + scale * B A are brought. Source: Liu et al. 2024.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "adapters/lora.h"

namespace fettle {

// A module's magnitudes are named "<module>.lora_magnitude_vector".
inline const std::string kMagnitude = ".lora_magnitude_vector";

// The least square of a norm that is divided by: an output whose weights are all zero stays zero.
inline constexpr double kLeastSquare = 1e-30;

// The factor on each output of a layer's module, f32 [out]: magnitude / |W + scale B A|. No gradient goes through the
// norm.
Tensor magnitude_over_norm(const Layer& layer, const std::string& module, const LoraOptions& options);

// The magnitudes at the start: the norms of a weight over its inputs, f32 [L, out..]. `weight_of` makes a layer's
// weight of its slices of `stacks`.
Tensor start_of_magnitudes(const std::vector<Tensor>& stacks,
                           const std::function<Tensor(const std::vector<Tensor>&)>& weight_of, bool fan_in_fan_out);

}  // namespace fettle
