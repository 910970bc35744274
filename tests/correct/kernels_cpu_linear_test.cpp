// Compares the CPU's matrix products with sums in double precision, for each instruction set of this machine.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/arrays/trial_numbers.h"
#include "block_tasks.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/lora_product.h"
#include "kernels/cpu/products/matrix_product.h"

namespace fettle::cpu {
namespace {

struct Case {
  int64_t m, n, k;
  bool a_turned, b_turned;
  DType a, b;
};

// The result has the dtype of a, or `result`.
HostArray run(const Case& c, const HostArray& a, const HostArray& b, const BlockOps* ops, const ParallelFor& parallel,
              int64_t threads = 2, std::optional<DType> result = {}, float scale = 1) {
  const DType dtype = result.value_or(c.a);
  const MatrixProduct p{.m = c.m,
                        .n = c.n,
                        .k = c.k,
                        .a = {a.data(), c.a, c.a_turned},
                        .b = {b.data(), c.b, c.b_turned},
                        .result = dtype,
                        .ops = ops,
                        .scale = scale,
                        .threads = threads};
  const int64_t bytes = product_workspace(p);
  EXPECT_EQ(bytes % 64, 0);
  // Nothing may write to the bytes behind the workspace and behind the result.
  constexpr int64_t kFence = 256;
  std::vector<uint8_t> scratch(bytes + kFence + 64, 0xab);
  const auto start = reinterpret_cast<uintptr_t>(scratch.data());
  uint8_t* const workspace = scratch.data() + ((start + 63) / 64 * 64 - start);
  HostArray out(Shape{dtype, {c.m * c.n + kFence}});
  std::fill_n(reinterpret_cast<uint8_t*>(out.data()), out.shape().bytes(), uint8_t{0xab});
  multiply(p, out.data(), workspace, parallel);
  for (int64_t i = 0; i < kFence; ++i) EXPECT_EQ(workspace[bytes + i], 0xab) << i;
  const auto* behind = reinterpret_cast<const uint8_t*>(out.data()) + c.m * c.n * byte_size(dtype);
  for (int64_t i = 0; i < kFence; ++i) EXPECT_EQ(behind[i], 0xab) << i;
  return out;
}

std::vector<double> expected(const Case& c, const HostArray& a, const HostArray& b) {
  const std::vector<double> x = doubles(a), y = doubles(b);
  std::vector<double> out(c.m * c.n);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j)
      for (int64_t q = 0; q < c.k; ++q)
        out[i * c.n + j] += x[c.a_turned ? q * c.m + i : i * c.k + q] * y[c.b_turned ? j * c.k + q : q * c.n + j];
  return out;
}

TEST(CpuProduct, IsTheSumOfProducts) {
  constexpr std::array kSizes{
      std::array<int64_t, 3>{1, 1, 1}, std::array<int64_t, 3>{7, 83, 51}, std::array<int64_t, 3>{50, 8, 96},
      std::array<int64_t, 3>{127, 130, 17}, std::array<int64_t, 3>{13, 64, 531}, std::array<int64_t, 3>{65, 83, 70},
      std::array<int64_t, 3>{112, 275, 230}, std::array<int64_t, 3>{128, 130, 96}, std::array<int64_t, 3>{64, 1037, 64},
      std::array<int64_t, 3>{96, 70, 1216}, std::array<int64_t, 3>{70, 70, 1210},
      // With `a` turned and `b` not, these are sums of outer products.
      std::array<int64_t, 3>{201, 8, 601}, std::array<int64_t, 3>{15, 300, 530}, std::array<int64_t, 3>{16, 64, 1}};
  uint32_t seed = 1;
  for (const DType a_type : {DType::kF32, DType::kBF16})
    for (const DType b_type : {DType::kF32, DType::kBF16})
      for (const auto& [m, n, k] : kSizes)
        for (const bool a_turned : {false, true})
          for (const bool b_turned : {false, true}) {
            const Case c{m, n, k, a_turned, b_turned, a_type, b_type};
            const HostArray a = trial_numbers({a_type, {m * k}}, ++seed), b = trial_numbers({b_type, {k * n}}, ++seed);
            const std::vector<double> wanted = expected(c, a, b);
            for (const BlockOps* ops : usable_block_ops(a_type == b_type ? a_type : DType::kF32)) {
              SCOPED_TRACE(testing::Message() << ops->name << ' ' << m << 'x' << n << 'x' << k << ' ' << a_turned
                                              << b_turned << ' ' << stablehlo_name(a_type) << stablehlo_name(b_type));
              for (const DType result : std::set{a_type, DType::kF32}) {
                std::vector<double> values = doubles(run(c, a, b, ops, on_one_thread, 2, result));
                values.resize(wanted.size());
                EXPECT_LT(relative_distance(values, wanted), result == DType::kF32 ? 1e-6 : 4e-3);
              }
            }
          }
}

// A row of a product of few rows has the same bits in every product, whatever other rows and threads there are.
TEST(CpuProduct, FewRowsHaveTheSameBitsAlone) {
  constexpr int64_t kN = 1003, kK = 331;
  uint32_t seed = 300;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BlockOps* ops : usable_block_ops(dtype)) {
      const HostArray b = trial_numbers({dtype, {kK * kN}}, ++seed), all = trial_numbers({dtype, {16 * kK}}, ++seed);
      const HostArray whole = run({16, kN, kK, false, true, dtype, dtype}, all, b, ops, on_one_thread);
      for (const int64_t rows : {1, 2, 3, 7}) {
        SCOPED_TRACE(testing::Message() << ops->name << ' ' << stablehlo_name(dtype) << ' ' << rows);
        const Case few{rows, kN, kK, false, true, dtype, dtype};
        const HostArray got = run(few, all, b, ops, on_three_threads);
        EXPECT_EQ(std::memcmp(got.data(), whole.data(), rows * kN * byte_size(dtype)), 0);
        std::vector<double> values = doubles(got);
        values.resize(rows * kN);
        EXPECT_LT(relative_distance(values, expected(few, all, b)), dtype == DType::kF32 ? 1e-6 : 4e-3);
      }
    }
}

// Large products are divided among threads: a task computes a range of rows of one panel (some columns of b); the last
// panels get smaller ranges (panels.h). Smaller products use one thread.
TEST(CpuProduct, ManyRowsHaveTheSameBitsForAnyNumberOfThreads) {
  uint32_t seed = 200;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [turned, k] :
         {std::pair{false, 37}, std::pair{true, 37}, std::pair{false, 67}, std::pair{true, 67}, std::pair{false, 96}}) {
      const Case c{k == 96 ? 1200 : 1201, 330, k, turned, turned, dtype, dtype};
      const HostArray a = trial_numbers({dtype, {c.m * c.k}}, ++seed), b = trial_numbers({dtype, {c.k * c.n}}, ++seed);
      const std::vector<double> wanted = expected(c, a, b);
      for (const BlockOps* ops : usable_block_ops(dtype)) {
        SCOPED_TRACE(testing::Message() << ops->name << ' ' << stablehlo_name(dtype) << ' ' << turned);
        const HostArray got = run(c, a, b, ops, on_one_thread, 1);
        std::vector<double> values = doubles(got);
        values.resize(wanted.size());
        EXPECT_LT(relative_distance(values, wanted), dtype == DType::kF32 ? 1e-6 : 4e-3);
        for (const int64_t threads : {2, 4, 7}) {
          const HostArray again = run(c, a, b, ops, on_three_threads, threads);
          EXPECT_EQ(std::memcmp(again.data(), got.data(), got.shape().bytes()), 0) << threads;
        }
      }
    }
}

// With `a` turned and `b` not, a result with few rows or few columns is a sum of outer products.
TEST(CpuProduct, OuterProductsAreScaledAndHaveTheSameBitsForAnyNumberOfThreads) {
  constexpr int64_t kK = 1103;  // several tasks pack
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [m, n] : {std::pair{8, 330}, std::pair{330, 8}})
      for (const BlockOps* ops : usable_block_ops(dtype)) {
        SCOPED_TRACE(testing::Message() << ops->name << ' ' << m << ' ' << stablehlo_name(dtype));
        const Case c{m, n, kK, true, false, dtype, dtype};
        const HostArray a = trial_numbers({dtype, {m * kK}}, 1), b = trial_numbers({dtype, {kK * n}}, 2);
        std::vector<double> wanted = expected(c, a, b);
        for (double& x : wanted) x *= 0.75;
        const HostArray got = run(c, a, b, ops, on_one_thread, 1, {}, 0.75F);
        std::vector<double> values = doubles(got);
        values.resize(wanted.size());
        EXPECT_LT(relative_distance(values, wanted), dtype == DType::kF32 ? 1e-6 : 4e-3);
        const HostArray again = run(c, a, b, ops, on_three_threads, 7, {}, 0.75F);
        EXPECT_EQ(std::memcmp(again.data(), got.data(), got.shape().bytes()), 0);
      }
}

// Two products in one: scale (a b + a2 b2).
template <int64_t kM, int64_t kN, int64_t kK>
void check_second_product(float scale = 0.75F) {
  uint32_t seed = 100;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t k2 : {1, 5, 8, 40, 64, 130})
      for (const bool turned : {false, true})
        for (const BlockOps* ops : usable_block_ops(dtype)) {
          SCOPED_TRACE(testing::Message() << ops->name << ' ' << k2 << ' ' << turned << ' ' << stablehlo_name(dtype));
          const auto numbers = [&](int64_t count) { return trial_numbers({dtype, {count}}, ++seed); };
          const HostArray a = numbers(kM * kK), b = numbers(kK * kN), a2 = numbers(kM * k2), b2 = numbers(k2 * kN);
          const MatrixProduct p{.m = kM,
                                .n = kN,
                                .k = kK,
                                .a = {a.data(), dtype, turned},
                                .b = {b.data(), dtype, turned},
                                .result = dtype,
                                .ops = ops,
                                .k2 = k2,
                                .a2 = {a2.data(), dtype, !turned},
                                .b2 = {b2.data(), dtype, turned},
                                .scale = scale};
          std::vector<double> wanted = expected({kM, kN, kK, turned, turned, dtype, dtype}, a, b);
          const std::vector<double> more = expected({kM, kN, k2, !turned, turned, dtype, dtype}, a2, b2);
          for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = scale * (wanted[i] + more[i]);
          std::vector<uint8_t> scratch(product_workspace(p) + 64);
          const auto start = reinterpret_cast<uintptr_t>(scratch.data());
          HostArray out(Shape{dtype, {kM * kN}});
          multiply(p, out.data(), scratch.data() + ((start + 63) / 64 * 64 - start), on_one_thread);
          EXPECT_LT(relative_distance(doubles(out), wanted), dtype == DType::kF32 ? 1e-6 : 4e-3);
        }
}

TEST(CpuProduct, AddsASecondProductAndScales) {
  check_second_product<37, 83, 51>();
  check_second_product<67, 83, 70>();
  check_second_product<80, 83, 96>();
  // Without a scale, the last product may round the sums of whole panels itself.
  check_second_product<67, 128, 600>(1);
  check_second_product<80, 112, 96>(1);
}

// Compares some elements of a b + a2 b2 with their definition. The result is f32.
void check_passes(int64_t m, int64_t n, int64_t k, double bound, bool a_turned = false, DType dtype = DType::kF32) {
  constexpr int64_t kK2 = 8;
  const auto numbers = [&](int64_t count, uint32_t seed) { return trial_numbers({dtype, {count}}, seed); };
  const HostArray a = numbers(m * k, 1), b = numbers(k * n, 2), a2 = numbers(m * kK2, 3), b2 = numbers(kK2 * n, 4);
  const std::vector<double> left = doubles(a), right = doubles(b), left2 = doubles(a2), right2 = doubles(b2);
  for (const BlockOps* ops : usable_block_ops(dtype)) {
    const MatrixProduct p{.m = m,
                          .n = n,
                          .k = k,
                          .a = {a.data(), dtype, a_turned},
                          .b = {b.data(), dtype, false},
                          .ops = ops,
                          .k2 = kK2,
                          .a2 = {a2.data(), dtype, false},
                          .b2 = {b2.data(), dtype, false},
                          .threads = 3};
    std::vector<uint8_t> scratch(product_workspace(p) + 64);
    EXPECT_LT(scratch.size(), 40'000'000u);
    const auto start = reinterpret_cast<uintptr_t>(scratch.data());
    HostArray out(Shape{DType::kF32, {m * n}});
    multiply(p, out.data(), scratch.data() + ((start + 63) / 64 * 64 - start), on_three_threads);
    for (int64_t i = 0; i < m * n; i += 97) {
      const int64_t row = i / n, column = i % n;
      double wanted = 0;
      for (int64_t q = 0; q < k; ++q) wanted += left[a_turned ? q * m + row : row * k + q] * right[q * n + column];
      for (int64_t q = 0; q < kK2; ++q) wanted += left2[row * kK2 + q] * right2[q * n + column];
      ASSERT_NEAR(out.as<float>()[i], wanted, bound) << ops->name << ' ' << row << ' ' << column;
    }
  }
}

// The last pass also adds the second product. With AMX, the pieces of `a` are packed in two passes over k.
TEST(CpuProduct, ALargeLeftOperandTakesSeveralPasses) {
  check_passes(8200, 70, 700, 2e-4);
  check_passes(12000, 144, 700, 2e-4, true);  // too large to be transposed back
}

// With vectors, all panels are computed for a range of k, then for the next range.
TEST(CpuProduct, LongRowsTakeSeveralPasses) {
  for (const int64_t n : {112, 144})  // a transposed `a` stays so, and is transposed back
    for (const bool a_turned : {false, true})
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(testing::Message() << n << ' ' << a_turned << ' ' << stablehlo_name(dtype));
        check_passes(50, n, 4500, 2e-4, a_turned, dtype);
        check_passes(50, n, 8300, 4e-4, a_turned, dtype);  // long enough for pairs of bf16, too
      }
}

// On CPUs with AMX, f32 is multiplied as pieces of bf16. Its sums must be as exact as those of f32, and must not be
// biased, whatever the numbers are.
TEST(CpuProduct, F32IsAsExactWithTilesAsWithVectors) {
  const std::vector<const BlockOps*> tables = usable_block_ops(DType::kF32);
  if (tables.back()->tiles == nullptr) GTEST_SKIP() << "no AMX";
  constexpr int64_t kM = 80, kN = 96;
  std::mt19937 random(7);
  const auto distance = [&](int64_t k, const std::function<float()>& draw, const BlockOps* ops) {
    const Case c{kM, kN, k, false, true, DType::kF32, DType::kF32};
    random.seed(7);
    HostArray a(Shape{DType::kF32, {kM * k}}), b(Shape{DType::kF32, {kN * k}});
    for (HostArray* each : {&a, &b}) std::generate(each->as<float>().begin(), each->as<float>().end(), draw);
    std::vector<double> got = doubles(run(c, a, b, ops, on_one_thread));
    const std::vector<double> wanted = expected(c, a, b);
    got.resize(wanted.size());
    double bias = 0;
    for (size_t i = 0; i < wanted.size(); ++i) bias += (got[i] - wanted[i]) / wanted[i] / (kM * kN);
    return std::pair(relative_distance(got, wanted), bias);
  };
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> positive(0.5F, 1);
  const std::array<std::function<float()>, 3> draws{[&] { return normal(random); }, [&] { return positive(random); },
                                                    [&] { return normal(random) * std::exp(4 * normal(random)); }};
  for (size_t kind = 0; kind < draws.size(); ++kind)
    for (const int64_t k : {64, 576, 4096}) {
      const auto [vectors, vector_bias] = distance(k, draws[kind], tables[tables.size() - 2]);
      const auto [tiles, tile_bias] = distance(k, draws[kind], tables.back());
      SCOPED_TRACE(testing::Message() << kind << ' ' << k << ' ' << vectors << ' ' << tiles << ' ' << tile_bias);
      EXPECT_LT(tiles, 1.2 * vectors);
      if (kind == 1) {  // all numbers are positive, so lost terms would add up
        EXPECT_LT(std::abs(tile_bias), 5e-8);
      }
    }
}

// No table loses a number that is not finite.
TEST(CpuProduct, WhatIsNotFiniteStaysSo) {
  constexpr int64_t kSize = 96;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const BlockOps* ops : usable_block_ops(dtype))
      for (const float bad : {infinity, -infinity, std::nanf(""), -std::nanf(""), std::bit_cast<float>(0x7fffffffU)}) {
        const Case c{kSize, kSize, kSize, false, true, dtype, dtype};
        const HostArray b = trial_numbers({dtype, {kSize * kSize}}, 2);
        HostArray a = trial_numbers({DType::kF32, {kSize * kSize}}, 1);
        a.as<float>()[5 * kSize + 7] = bad;
        const std::vector<double> got = doubles(run(c, a.to(dtype), b, ops, on_one_thread));
        for (int64_t i = 0; i < kSize * kSize; ++i)
          EXPECT_EQ(std::isfinite(got[i]), i / kSize != 5) << ops->name << ' ' << bad << ' ' << i;
      }
}

// Scratch memory with a fence behind it, to which nothing may write.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(bytes), memory_(Shape{DType::kU8, {bytes + kFence}}) {
    std::fill_n(memory_.as<uint8_t>().begin(), memory_.bytes(), uint8_t{0xab});
  }
  void* data() { return memory_.data(); }
  void expect_fence() {
    for (int64_t i = 0; i < kFence; ++i) EXPECT_EQ(memory_.as<uint8_t>()[bytes_ + i], 0xab) << i;
  }

 private:
  static constexpr int64_t kFence = 256;
  int64_t bytes_;
  HostArray memory_;
};

TEST(CpuLora, IsItsDefinition) {
  constexpr int64_t kRows = 67, kIn = 65, kOut = 83;
  constexpr float kScale = 1.5;
  uint32_t seed = 300;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t rank : {1, 8, 70})
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(testing::Message() << stablehlo_name(dtype) << ' ' << rank << ' ' << transposed);
        const auto numbers = [&](int64_t count) { return trial_numbers({dtype, {count}}, ++seed); };
        const HostArray x = numbers(kRows * kIn), weight = numbers(kIn * kOut), a = numbers(rank * kIn),
                        b = numbers(kOut * rank), dy = numbers(kRows * kOut);
        const LoraProblem p{.rows = kRows,
                            .in = kIn,
                            .out = kOut,
                            .rank = rank,
                            .dtype = dtype,
                            .weight_dtype = dtype,
                            .transposed = transposed,
                            .scale = kScale,
                            .x = x.data(),
                            .weight = weight.data(),
                            .a = a.data(),
                            .b = b.data()};
        HostArray y(Shape{dtype, {kRows * kOut}}), low(Shape{dtype, {kRows * rank}}), dx(Shape{dtype, {kRows * kIn}}),
            da(Shape{DType::kF32, {rank * kIn}}), db(Shape{DType::kF32, {kOut * rank}});
        Scratch forward(lora_workspace(p)), backward(lora_gradient_workspace(p, DType::kF32));
        lora_forward(p, y.data(), low.data(), forward.data(), on_three_threads);
        lora_backward(p, low.data(), dy.data(), {dx.data(), da.data(), db.data(), DType::kF32}, backward.data(),
                      on_three_threads);
        forward.expect_fence();
        backward.expect_fence();

        // Returns scale * left * right, for left [m, k] and right [k, n]. A matrix is stored transposed if its flag is
        // set.
        auto product = [&](int64_t m, int64_t n, int64_t k, const HostArray& left, bool left_turned,
                           const HostArray& right, bool right_turned, double scale) {
          std::vector<double> out = expected({m, n, k, left_turned, right_turned, dtype, dtype}, left, right);
          for (double& value : out) value *= scale;
          return out;
        };
        auto array = [](const std::vector<double>& values) {
          const std::vector<float> floats(values.begin(), values.end());
          return HostArray::from(Shape{DType::kF32, {static_cast<int64_t>(floats.size())}}, floats);
        };
        auto sum = [](std::vector<double> left, const std::vector<double>& right) {
          for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
          return left;
        };
        const HostArray x_a = array(product(kRows, rank, kIn, x, false, a, true, kScale)),
                        dy_b = array(product(kRows, rank, kOut, dy, false, b, false, kScale));
        const double bound = dtype == DType::kF32 ? 2e-6 : 1e-2;
        EXPECT_LT(relative_distance(doubles(y), sum(product(kRows, kOut, kIn, x, false, weight, !transposed, 1),
                                                    product(kRows, kOut, rank, x_a, false, b, true, 1))),
                  bound);
        EXPECT_LT(relative_distance(doubles(dx), sum(product(kRows, kIn, kOut, dy, false, weight, transposed, 1),
                                                     product(kRows, kIn, rank, dy_b, false, a, false, 1))),
                  bound);
        EXPECT_LT(relative_distance(doubles(da), product(rank, kIn, kRows, dy_b, true, x, false, 1)), bound);
        EXPECT_LT(relative_distance(doubles(db), product(kOut, rank, kRows, dy, true, x_a, false, 1)), bound);
      }
}

}  // namespace
}  // namespace fettle::cpu
