// Defines Lion. Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms".
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m. Each step moves a weight by the learning rate, in the direction opposite to the sign of a weighted mean of m
// and the gradient. adam_beta1 is the weight of m in the mean; adam_beta2 is the decay of m. Weight decay is decoupled.
UpdateRule lion_rule();
// Returns Lion with m stored as blockwise.h describes (bitsandbytes' Lion8bit).
UpdateRule lion_8bit_rule();

}  // namespace fettle
