// Defines Lion. Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms".
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m. Each step changes a weight by the learning rate, against the sign of a weighted mean of m and the gradient.
// adam_beta1 is the weight of m in that mean; adam_beta2 is the decay of m. Weight decay is decoupled.
UpdateRule lion_rule();
// Is the same rule, with m stored as in blockwise.h (bitsandbytes' Lion8bit).
UpdateRule lion_8bit_rule();

}  // namespace fettle
