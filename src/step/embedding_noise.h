// Defines with_noise, which adds NEFTune's noise to embedded tokens (Jain 2023).
#pragma once

#include "adapters/lora.h"

namespace fettle {

// Adds uniform noise within alpha / sqrt(tokens of the row x D) to x_BTD. The noise of a token depends on key.seed, its
// row and its place in the row, not on the place of the row in the batch. `sequences` is the number of rows of the
// step.
Tensor with_noise(const Tensor& x_BTD, double alpha, const DropoutKey& key, int64_t sequences);

}  // namespace fettle
