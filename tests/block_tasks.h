// Defines two ways in which a test runs the tasks of a CPU kernel, and a count of the kernel's block products.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {

// A kernel's result must not depend on how many threads run its tasks.
inline void on_one_thread(int64_t count, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < count; ++i) task(i);
}
inline void on_three_threads(int64_t count, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  auto run = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < count;) task(i);
  };
  std::thread second(run), third(run);
  run();
  second.join();
  third.join();
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
