// Defines the products of a linear layer with LoRA on the CPU, forward and backward.
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"
#include "kernels/cpu/threads.h"

namespace fettle::cpu {

// y = x * weight^T + scale * x * a^T * b^T, with x [rows, in] and y [rows, out]. Arrays are dense and row-major. x, a,
// b, y and the gradients of x and y have the dtype `dtype`.
struct LoraProblem {
  int64_t rows, in, out, rank;
  DType dtype, weight_dtype;  // f32 or bf16
  bool transposed;            // the weight is [in, out], else [out, in]
  float scale;
  int64_t threads = 2;  // how many threads should get equal shares of the work; results do not depend on it
  const void *x = nullptr, *weight = nullptr, *a = nullptr, *b = nullptr;  // a [rank, in], b [out, rank]
};

struct LoraGradients {
  void *dx, *da, *db;
  DType weights;  // dtype of da and db
};

// Return how many bytes of scratch memory a pass needs. The memory must be aligned to 64 bytes.
int64_t lora_workspace(const LoraProblem& problem);
int64_t lora_gradient_workspace(const LoraProblem& problem, DType weights);  // weights: as in LoraGradients

// lora_forward computes y and `low` = scale * x * a^T, [rows, rank]. lora_backward reads `low`.
void lora_forward(const LoraProblem& problem, void* y, void* low, void* workspace, const ParallelFor& parallel);
void lora_backward(const LoraProblem& problem, const void* low, const void* dy, const LoraGradients& gradients,
                   void* workspace, const ParallelFor& parallel);

}  // namespace fettle::cpu
