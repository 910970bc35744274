// Defines reverse-mode differentiation: one loop goes backwards over the nodes and calls each op's VJP (vector-Jacobian
// product) from the op table.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Appends the gradients of the scalar `y` with respect to each of `wrt` to the current block and returns them. A
// gradient has the shape and dtype of its tensor. If y does not depend on a tensor, its gradient is zeros.
std::vector<Tensor> grad(const Tensor& y, const std::vector<Tensor>& wrt);

// Returns the cotangents of `wrt`, given those of `outputs`. All tensors are in the current block. Null stands for zero
// in both lists.
std::vector<Tensor> backprop(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                             const std::vector<Tensor>& wrt);

// Which operands and results of a scan are active, that is, depend on values whose gradient is wanted. `scan_activity`
// starts from the operands that are active outside. In later trips of the loop, activity spreads from one carry to
// others. Only floats can be active.
struct ScanActivity {
  std::vector<bool> operands, results;
};
struct Node;
ScanActivity scan_activity(const Node& scan, std::vector<bool> operands);

}  // namespace fettle
