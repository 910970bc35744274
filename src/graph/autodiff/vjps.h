// Defines the VJPs of the op table: cotangents of the operands from those of the results.
// Only called with a non-null cotangent of the first result, except for kCustomCall, kOptimizationBarrier and kScan.
#pragma once

#include <vector>

#include "graph/op_table.h"

namespace fettle::vjps {

using Tensors = std::vector<Tensor>;

Tensors abs(const VjpArgs&);
Tensors cosine(const VjpArgs&);
Tensors erf(const VjpArgs&);
Tensors exponential(const VjpArgs&);
Tensors log(const VjpArgs&);
Tensors logistic(const VjpArgs&);
Tensors negate(const VjpArgs&);
Tensors rsqrt(const VjpArgs&);
Tensors sine(const VjpArgs&);
Tensors sqrt(const VjpArgs&);
Tensors tanh(const VjpArgs&);
Tensors add(const VjpArgs&);
Tensors divide(const VjpArgs&);
Tensors maximum(const VjpArgs&);
Tensors minimum(const VjpArgs&);
Tensors multiply(const VjpArgs&);
Tensors power(const VjpArgs&);
Tensors subtract(const VjpArgs&);
Tensors select(const VjpArgs&);
Tensors convert(const VjpArgs&);
Tensors broadcast_in_dim(const VjpArgs&);
Tensors concatenate(const VjpArgs&);
Tensors dynamic_slice(const VjpArgs&);
Tensors dynamic_update_slice(const VjpArgs&);
Tensors pad(const VjpArgs&);
Tensors reshape(const VjpArgs&);
Tensors slice(const VjpArgs&);
Tensors transpose(const VjpArgs&);
Tensors dot_general(const VjpArgs&);
Tensors reduce(const VjpArgs&);
Tensors take(const VjpArgs&);
Tensors take_transpose(const VjpArgs&);
Tensors custom_call(const VjpArgs&);
Tensors custom_gradient(const VjpArgs&);
Tensors float8_dot(const VjpArgs&);
Tensors optimization_barrier(const VjpArgs&);
Tensors place(const VjpArgs&);
Tensors scan(const VjpArgs&);  // in scan_vjp.cpp
Tensors sharding_constraint(const VjpArgs&);

}  // namespace fettle::vjps
