// Defines with_noise, which adds NEFTune's noise to embedded tokens (Jain 2023).
#pragma once

#include "graph/random.h"

namespace fettle {

// Adds uniform noise to x_BTD. The noise lies within +- alpha / sqrt(n * D), where n is the number of tokens of the
// sequence and D is the size of an embedded token. The noise of a token depends on key.seed, on the sequence's number
// and on the token's position in the sequence. The noise depends neither on the token's place in the batch nor on the
// number of sequences of the step.
Tensor with_noise(const Tensor& x_BTD, double alpha, const PositionKey& key);

}  // namespace fettle
