// Defines reverse-mode differentiation: one loop goes backwards over the nodes and calls each op's VJP (vector-Jacobian
// product) from the op table.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Returns the gradients of the scalar `y` with respect to each tensor of `wrt`. Appends the ops that compute them to
// the current block. A gradient has the shape and dtype of its tensor. If y does not depend on a tensor, the gradient
// of that tensor is zeros.
std::vector<Tensor> grad(const Tensor& y, const std::vector<Tensor>& wrt);

// Returns the cotangents of `wrt`, given the cotangents of `outputs`. All tensors are in the current block. In
// `cotangents` and in the result, null stands for zero.
std::vector<Tensor> backprop(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                             const std::vector<Tensor>& wrt);

// If x, a value of the current block, was computed in f32 and then rounded to fewer bits, returns the value in f32.
// Otherwise, returns x.
Tensor before_rounding(const Tensor& x);

// The active operands and results of a scan: those that depend on a value whose gradient is wanted. Only floats can be
// active. scan_activity() gets the operands that are active before the loop. A carry can also become active in a later
// trip; it then counts as active from the start.
struct ScanActivity {
  std::vector<bool> operands, results;
};
struct Node;
ScanActivity scan_activity(const Node& scan, std::vector<bool> operands);

}  // namespace fettle
