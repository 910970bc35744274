// Defines reverse-mode differentiation: one loop backwards over the nodes, which calls the VJPs of the op table.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Gradients of the scalar `y` by each of `wrt`, appended to the current block. A gradient has the shape and dtype of
// its tensor; it is zeros where y does not depend on the tensor.
std::vector<Tensor> grad(const Tensor& y, const std::vector<Tensor>& wrt);

// Cotangents of `wrt` given those of `outputs`, all in the current block. Null stands for zero in both.
std::vector<Tensor> backprop(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                             const std::vector<Tensor>& wrt);

// Which operands and results of a scan are active (depend on values whose gradient is wanted), given the operands that
// are active from outside: activity spreads from carry to carry in later trips. Only floats are ever active.
struct ScanActivity {
  std::vector<bool> operands, results;
};
struct Node;
ScanActivity scan_activity(const Node& scan, std::vector<bool> operands);

}  // namespace fettle
