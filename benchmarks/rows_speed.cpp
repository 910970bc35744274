// Measures the functions of RowOps in one thread with each instruction set of this machine, at the shapes of training
// steps. Prints milliseconds and GB/s of memory traffic as a table in Markdown. Measures processor time, on
// which other programs have less effect.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <vector>

#include "base/arrays/trial_numbers.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kPositions = 512, kWidth = 576, kHidden = 1536, kVocab = 49152;
constexpr int kRounds = 7;
constexpr double kSeconds = 0.03;  // duration of one round

double seconds_of(const std::function<void()>& work) {
  const auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double start = now();
    int count = 0;
    do work();
    while (++count, now() - start < kSeconds);
    best = std::min(best, (now() - start) / count);
  }
  return best;
}

void print_rows(DType dtype, const BlockOps& ops) {
  const RowOps& rows = ops.rows;
  const auto array = [](DType type, int64_t count, uint32_t seed) { return trial_numbers({type, {count}}, seed); };
  const auto floats = [](const HostArray& a) { return reinterpret_cast<const float*>(a.data()); };
  const auto print = [&](const char* name, int64_t bytes, const std::function<void()>& work) {
    const double seconds = seconds_of(work);
    fmt::print("| {} | {} | {} | {:.2f} | {:.1f} |\n", name, stablehlo_name(dtype), ops.name, 1e3 * seconds,
               1e-9 * static_cast<double>(bytes) / seconds);
  };
  const int64_t size = byte_size(dtype), gates = kPositions * kHidden, values = kPositions * kWidth;
  const HostArray gate = array(dtype, gates, 1), up = array(dtype, gates, 2), x = array(dtype, values, 3);
  HostArray out = array(dtype, gates, 4), other = array(dtype, gates, 5);
  print("gate, forward", 3 * gates * size,
        [&] { rows.gated(Gate::kSilu, dtype, gates, gate.data(), up.data(), out.data()); });
  print("gate, backward", 5 * gates * size, [&] {
    rows.gated_gradient(Gate::kSilu, dtype, gates, gate.data(), up.data(), gate.data(), out.data(), other.data());
  });
  const HostArray weight = array(DType::kF32, kWidth, 6);
  std::vector<float> inverse(kPositions);
  const NormRows norm{dtype, kPositions, kWidth, x.data(), floats(weight)};
  print("RMSNorm, forward", 2 * values * size, [&] { rows.norm(norm, 1e-5F, out.data(), inverse.data()); });
  print("RMSNorm, backward", 3 * values * size,
        [&] { rows.norm_gradient(norm, inverse.data(), gate.data(), out.data()); });
  constexpr int64_t kRows = 64;
  const HostArray logits = array(DType::kF32, kRows * kVocab, 8);
  const std::vector<int32_t> targets(kRows, 17);
  HostArray slope = array(dtype, kRows * kVocab, 9);
  std::vector<float> losses(kRows), hits(kRows), scratch(kVocab + 16);
  print("cross-entropy of 64 rows", kRows * kVocab * (4 + size), [&] {
    rows.cross_entropy({kRows, kVocab, floats(logits), targets.data(), nullptr, dtype}, losses.data(), hits.data(),
                       slope.data(), scratch.data());
  });
}

}  // namespace
}  // namespace fettle::cpu

int main() {
  using namespace fettle::cpu;
  fmt::print("| work | dtype | instruction set | ms | GB/s |\n|---|---|---|---|---|\n");
  for (const fettle::DType dtype : {fettle::DType::kF32, fettle::DType::kBF16})
    for (const BlockOps* ops : usable_block_ops(dtype)) print_rows(dtype, *ops);
}
