// Defines two orders in which a test computes the tasks of a CPU kernel, and a count of the kernel's block products.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {

// A kernel's result must not depend on the order.
inline void forwards(int64_t count, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}
inline void backwards(int64_t count, const std::function<void(int64_t)>& task) {
  while (count-- > 0) task(count);
}

// Gives `use` this CPU's fastest table of functions for f32. Returns how many products `use` computes with it.
inline int64_t counted_products(const std::function<void(const BlockOps&)>& use) {
  static const BlockOps* fastest;
  static int64_t products;
  fastest = &block_ops(DType::kF32);
  products = 0;
  BlockOps counting = *fastest;
  counting.product = [](int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
                        int64_t b_row, float* c, int64_t c_row, bool accumulate) {
    ++products;
    fastest->product(m, n, k, a, a_row, a_transposed, b, b_row, c, c_row, accumulate);
  };
  use(counting);
  return products;
}

}  // namespace fettle::cpu
