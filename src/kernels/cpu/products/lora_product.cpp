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

// Parts of the scratch memory of the backward pass. Tasks of different products may run at the same time, so each
// product has memory of its own.
struct Scratch {
  int64_t d_low = 0, low_gradient, input_gradient, da, db, all;  // offsets in bytes

  Scratch(const LoraProblem& p, DType weights) {
    int64_t used = (p.rows * p.rank * byte_size(p.dtype) + 63) / 64 * 64;
    auto take = [&](const MatrixProduct& product) {
      const int64_t start = used;
      used += product_workspace(product);
      return start;
    };
    low_gradient = take(cpu::low_gradient(p, nullptr));
    input_gradient = take(cpu::input_gradient(p, nullptr, nullptr));
    da = take(weight_gradient(p, p.rank, p.in, nullptr, nullptr, weights));
    db = take(weight_gradient(p, p.out, p.rank, nullptr, nullptr, weights));
    all = used;
  }
};

}  // namespace

int64_t lora_workspace(const LoraProblem& p) {
  return product_workspace(low_product(p)) + product_workspace(result_product(p, nullptr));
}

int64_t lora_gradient_workspace(const LoraProblem& p, DType weights) {
  return Scratch(p, weights).all;
}

void lora_forward(const LoraProblem& p, void* y, void* low, void* workspace, const ParallelFor& parallel) {
  const MatrixProduct low_part = low_product(p), result = result_product(p, low);
  TaskRow tasks;
  const TaskRow::Group low_tasks = add_product(low_part, low, workspace, tasks);
  add_product(result, y, static_cast<char*>(workspace) + product_workspace(low_part), tasks, {.seconds = low_tasks});
  tasks.run(threads_that_pay(result, parallel));
}

void lora_backward(const LoraProblem& p, const void* low, const void* dy, const LoraGradients& gradients,
                   void* workspace, const ParallelFor& parallel) {
  const Scratch at(p, gradients.weights);
  auto* const scratch = static_cast<char*>(workspace);
  void* const d_low = scratch + at.d_low;
  const MatrixProduct dx = input_gradient(p, dy, d_low);
  TaskRow tasks;
  const TaskRow::Group d_low_tasks = add_product(low_gradient(p, dy), d_low, scratch + at.low_gradient, tasks);
  add_product(dx, gradients.dx, scratch + at.input_gradient, tasks, {.seconds = d_low_tasks});
  add_product(weight_gradient(p, p.rank, p.in, d_low, p.x, gradients.weights), gradients.da, scratch + at.da, tasks,
              {.operands = d_low_tasks});
  add_product(weight_gradient(p, p.out, p.rank, dy, low, gradients.weights), gradients.db, scratch + at.db, tasks);
  tasks.run(threads_that_pay(dx, parallel));
}

}  // namespace fettle::cpu
