// Defines reverse-mode differentiation: one loop over the nodes backwards plus the op table's VJPs.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Gradients of the scalar `y` by each of `wrt`, appended to the current block. A gradient has its tensor's shape and
// dtype; zeros where y does not depend on it.
std::vector<Tensor> grad(const Tensor& y, const std::vector<Tensor>& wrt);

// Cotangents of `wrt` given those of `outputs` (null = zero), all in the current block; null where there is none.
std::vector<Tensor> backprop(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                             const std::vector<Tensor>& wrt);

// For a scan with the given operands active (their gradient is wanted): which operands carry activity once it has gone
// around the loop, and which results do. Only floats are ever active.
struct ScanActivity {
  std::vector<bool> operands, results;
};
struct Node;
ScanActivity scan_activity(const Node& scan, std::vector<bool> operands);

}  // namespace fettle
