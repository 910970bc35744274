// Defines nested_absmax, which computes the absmax values of nf4 and fp4 from their codes.
#pragma once

#include "graph/tensor.h"

namespace fettle {

// Returns the absmax values in the shape of `codes`. Each value is map[code], times the absmax of the code's block of
// 256 codes, plus the mean.
Tensor nested_absmax(const Tensor& codes, const Tensor& absmax, const Tensor& offset);

}  // namespace fettle
