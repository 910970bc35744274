// Measures matrix products of one thread with each instruction set of this machine, except the portable code, at the
// shapes of training steps. Prints GFLOP/s as a table in Markdown. Measures processor time, on which other programs
// have less effect.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/arrays/trial_numbers.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/matrix_product.h"

namespace fettle::cpu {
namespace {

struct Case {
  const char* name;
  int64_t m, n, k;
  bool a_turned, b_turned;
};
constexpr Case kCases[] = {
    {"135M q, forward", 512, 576, 576, false, true},        {"135M gate, forward", 512, 1536, 576, false, true},
    {"135M gate, backward", 512, 576, 1536, false, false},  {"135M gate, weight", 1536, 576, 512, true, false},
    {"135M head, forward", 512, 49152, 576, false, true},   {"135M head, backward", 512, 576, 49152, false, false},
    {"135M head, weight", 49152, 576, 512, true, false},    {"135M LoRA A, forward", 512, 8, 576, false, true},
    {"135M LoRA B, forward", 512, 576, 8, false, true},     {"135M LoRA A, weight", 8, 576, 512, true, false},
    {"135M LoRA B, weight", 576, 8, 512, true, false},      {"1.1B gate, forward", 512, 5632, 2048, false, true},
    {"1.1B gate, backward", 512, 2048, 5632, false, false},
};
constexpr int kRounds = 7;
constexpr double kSeconds = 0.05;  // duration of one round

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double rate(const Case& c, DType dtype, const BlockOps& ops) {
  const HostArray a = trial_numbers({dtype, {c.m * c.k}}, 1), b = trial_numbers({dtype, {c.k * c.n}}, 2);
  HostArray out(Shape{dtype, {c.m, c.n}});
  const MatrixProduct p{.m = c.m,
                        .n = c.n,
                        .k = c.k,
                        .a = {a.data(), dtype, c.a_turned},
                        .b = {b.data(), dtype, c.b_turned},
                        .result = dtype,
                        .ops = &ops};
  std::vector<char> scratch(product_workspace(p) + 64);
  char* const workspace = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  const ParallelFor in_turn = [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double start = processor_seconds();
    int count = 0;
    do multiply(p, out.data(), workspace, in_turn);
    while (++count, processor_seconds() - start < kSeconds);
    best = std::min(best, (processor_seconds() - start) / count);
  }
  return 2e-9 * static_cast<double>(c.m * c.n * c.k) / best;
}

void print_table() {
  fmt::print("| product | m, n, k | dtype | instruction set | GFLOP/s of one thread |\n|---|---|---|---|---|\n");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Case& c : kCases)
      for (const BlockOps* ops : usable_block_ops(dtype))
        if (ops != usable_block_ops(dtype).front())
          fmt::print("| {} | {}, {}, {} | {} | {} | {:.0f} |\n", c.name, c.m, c.n, c.k, stablehlo_name(dtype),
                     ops->name, rate(c, dtype, *ops));
}

}  // namespace
}  // namespace fettle::cpu

int main() {
  fettle::cpu::print_table();
}
