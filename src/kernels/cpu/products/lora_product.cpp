#include "kernels/cpu/products/lora_product.h"

#include <algorithm>

#include "kernels/cpu/products/matrix_product.h"

namespace fettle::cpu {
namespace {

// Describes low = scale * x * a^T.
MatrixProduct low_product(const LoraProblem& p) {
  return {.m = p.rows,
          .n = p.rank,
          .k = p.in,
          .a = {p.x, p.dtype, false},
          .b = {p.a, p.dtype, true},
          .result = p.dtype,
          .scale = p.scale,
          .threads = p.threads};
}

// Describes y = x * weight^T + low * b^T.
MatrixProduct result_product(const LoraProblem& p, const void* low) {
  return {.m = p.rows,
          .n = p.out,
          .k = p.in,
          .a = {p.x, p.dtype, false},
          .b = {p.weight, p.weight_dtype, !p.transposed},
          .result = p.dtype,
          .k2 = p.rank,
          .a2 = {low, p.dtype, false},
          .b2 = {p.b, p.dtype, true},
          .threads = p.threads};
}

// Describes d_low = scale * dy * b, the gradient of x * a^T.
MatrixProduct low_gradient(const LoraProblem& p, const void* dy) {
  return {.m = p.rows,
          .n = p.rank,
          .k = p.out,
          .a = {dy, p.dtype, false},
          .b = {p.b, p.dtype, false},
          .result = p.dtype,
          .scale = p.scale,
          .threads = p.threads};
}

// Describes the gradient of the input: `dy * weight + d_low * a`.
MatrixProduct input_gradient(const LoraProblem& p, const void* dy, const void* d_low) {
  return {.m = p.rows,
          .n = p.in,
          .k = p.out,
          .a = {dy, p.dtype, false},
          .b = {p.weight, p.weight_dtype, p.transposed},
          .result = p.dtype,
          .k2 = p.rank,
          .a2 = {d_low, p.dtype, false},
          .b2 = {p.a, p.dtype, false},
          .threads = p.threads};
}

// Describes the product left^T * right, [m, n].
MatrixProduct weight_gradient(const LoraProblem& p, int64_t m, int64_t n, const void* left, const void* right,
                              DType result) {
  return {.m = m,
          .n = n,
          .k = p.rows,
          .a = {left, p.dtype, true},
          .b = {right, p.dtype, false},
          .result = result,
          .threads = p.threads};
}

int64_t d_low_bytes(const LoraProblem& p) {
  return (p.rows * p.rank * byte_size(p.dtype) + 63) / 64 * 64;
}

}  // namespace

int64_t lora_workspace(const LoraProblem& p) {
  return std::max(product_workspace(low_product(p)), product_workspace(result_product(p, nullptr)));
}

int64_t lora_gradient_workspace(const LoraProblem& p, DType weights) {
  return d_low_bytes(p) +
         std::max({product_workspace(low_gradient(p, nullptr)), product_workspace(input_gradient(p, nullptr, nullptr)),
                   product_workspace(weight_gradient(p, p.rank, p.in, nullptr, nullptr, weights)),
                   product_workspace(weight_gradient(p, p.out, p.rank, nullptr, nullptr, weights))});
}

void lora_forward(const LoraProblem& p, void* y, void* low, void* workspace, const ParallelFor& parallel) {
  multiply(low_product(p), low, workspace, parallel);
  multiply(result_product(p, low), y, workspace, parallel);
}

void lora_backward(const LoraProblem& p, const void* low, const void* dy, const LoraGradients& gradients,
                   void* workspace, const ParallelFor& parallel) {
  void* const d_low = workspace;
  workspace = static_cast<char*>(workspace) + d_low_bytes(p);
  multiply(low_gradient(p, dy), d_low, workspace, parallel);
  multiply(input_gradient(p, dy, d_low), gradients.dx, workspace, parallel);
  multiply(weight_gradient(p, p.rank, p.in, d_low, p.x, gradients.weights), gradients.da, workspace, parallel);
  multiply(weight_gradient(p, p.out, p.rank, dy, low, gradients.weights), gradients.db, workspace, parallel);
}

}  // namespace fettle::cpu
