// Defines DoRA. A module has one magnitude per output. Each row of W + scale * B A is scaled so that its norm equals
// the magnitude of the output. Source: Liu et al. 2024.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "adapters/lora.h"

namespace fettle {

// A module's magnitudes are named "<module>.lora_magnitude_vector".
inline const std::string kMagnitude = ".lora_magnitude_vector";

// Lower bound of the squared norm, which keeps the division finite for an output whose weights are all zero.
inline constexpr double kLeastSquare = 1e-30;

// Returns the factor on each output of a layer's module, f32 [out]: magnitude / |W + scale B A|. Gradients do not flow
// through the norm.
Tensor magnitude_over_norm(const Layer& layer, const std::string& module, const LoraOptions& options);

// Returns the initial magnitudes, f32 [L, out..]: the norm of each output's weights. `weight_of` computes a layer's
// weight from the layer's slices of `stacks`.
Tensor start_of_magnitudes(const std::vector<Tensor>& stacks,
                           const std::function<Tensor(const std::vector<Tensor>&)>& weight_of, bool fan_in_fan_out);

}  // namespace fettle
