// Defines Lion. Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms".
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m; weights move by the learning rate against the sign of a mean of m and the gradient. Decoupled decay.
// adam_beta1 weighs m in that mean, adam_beta2 is m's own decay.
UpdateRule lion_rule();
// The same with m as blockwise.h keeps it (bitsandbytes' Lion8bit).
UpdateRule lion_8bit_rule();

}  // namespace fettle
