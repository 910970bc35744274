// Defines Adam-mini (Zhang et al. 2024, arXiv:2406.16793): AdamW with one second moment for each block of elements, not
// for each element. As in the package adam-mini 1.1.1, a block is a head of a query or key projection, a row of any
// other matrix, or a whole vector (norms). Biases have a second moment for each element.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

UpdateRule adam_mini_rule();

}  // namespace fettle
