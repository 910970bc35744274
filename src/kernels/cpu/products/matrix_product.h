// Defines matrix products on the CPU: c = scale * (a * b + a2 * b2). Each operand is stored row by row, or transposed
// ("turned").
//
// The columns of b are divided into panels that are some vectors wide. A thread packs a slice of a panel and multiplies
// the rows of its task by the slice while the slice is in the cache. If there are only few rows, as when one token is
// generated, nothing is packed: each stored row of the weight is multiplied by all rows. The gradients of LoRA's
// weights pack only the operand with few columns (outer_sums.h). If rows of `a` are so long that `a` does not fit into
// the caches, all panels are computed for a range of k, then for the next range. With AMX, large products are computed
// with tiles; f32 is split into pieces of bf16 (kernels/cpu/tile_ops.h). A short second product is then added before
// the sums leave the registers. Elements are rounded at most once, when c is stored. Each element is summed in a fixed
// order, which does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"
#include "kernels/cpu/task_row.h"
#include "kernels/cpu/threads.h"

namespace fettle::cpu {

struct BlockOps;

// One operand: [rows, columns], or [columns, rows] when `turned`.
struct ProductOperand {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // f32 or bf16
  bool turned = false;
};

// c [m, n] = scale * (a [m, k] * b [k, n] + a2 [m, k2] * b2 [k2, n]). Arrays are dense and row-major.
struct MatrixProduct {
  int64_t m = 0, n = 0, k = 0;
  ProductOperand a, b;
  DType result = DType::kF32;     // dtype of c: f32 or bf16
  const BlockOps* ops = nullptr;  // null: the fastest table of this CPU for the operands' dtypes
  int64_t k2 = 0;                 // 0: there is no second product
  ProductOperand a2 = {}, b2 = {};
  float scale = 1;
  int64_t threads = 2;  // how many threads should get equal shares of the work; the result does not depend on it
};

// Returns how many bytes of scratch memory multiply() needs. The memory must be aligned to 64 bytes. The number depends
// only on the sizes, how operands are stored, the dtypes (also that of the result) and the scale.
int64_t product_workspace(const MatrixProduct& product);
void multiply(const MatrixProduct& product, void* c, void* workspace, const ParallelFor& parallel);

// Groups of `tasks` that a product waits for: its first operands `a` and `b` are complete when the tasks of `operands`
// have ended, a2 and b2 when those of `seconds` have ended.
struct ProductAfter {
  TaskRow::Group operands = TaskRow::kNone, seconds = TaskRow::kNone;
};
// Appends the tasks of a product. Its result is complete when the tasks of the returned group have ended. `c` and
// `workspace` must stay until then.
TaskRow::Group add_product(const MatrixProduct& product, void* c, void* workspace, TaskRow& tasks,
                           ProductAfter after = {});
// Returns `parallel`, or, for a product that takes less time than waking a thread, a function that runs all tasks in
// the calling thread.
ParallelFor threads_that_pay(const MatrixProduct& product, const ParallelFor& parallel);

}  // namespace fettle::cpu
