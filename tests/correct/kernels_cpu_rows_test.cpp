// Compares the CPU's functions on rows with the same formulas in double precision, for each instruction set of this
// machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/arrays/trial_numbers.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

// Arrays with a fence, to which nothing may write.
class Fenced {
 public:
  explicit Fenced(DType dtype, int64_t count) : count_(count), array_(Shape{dtype, {count + kFence}}) {
    std::fill_n(reinterpret_cast<uint8_t*>(array_.data()), array_.shape().bytes(), uint8_t{0xab});
  }
  void* data() { return array_.data(); }
  float* floats() { return reinterpret_cast<float*>(array_.data()); }
  std::vector<double> values() const {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(array_.data());
    for (int64_t i = count_ * byte_size(array_.shape().dtype); i < array_.shape().bytes(); ++i)
      EXPECT_EQ(bytes[i], 0xab);
    std::vector<double> out = doubles(array_);
    out.resize(count_);
    return out;
  }

 private:
  static constexpr int64_t kFence = 40;
  int64_t count_;
  HostArray array_;
};

double bound_of(DType dtype) {
  return dtype == DType::kF32 ? 1e-6 : 4e-3;
}

// Calls body(table, dtype, width) for each instruction set and dtype, for widths that are multiples of a vector and
// widths that are not.
template <typename Body>
void each_case(const Body& body) {
  for (const BlockOps* ops : usable_block_ops(DType::kBF16))
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const int64_t width : {5, 16, 77, 128}) {
        SCOPED_TRACE(testing::Message() << ops->name << ' ' << stablehlo_name(dtype) << ' ' << width);
        body(ops->rows, dtype, width);
      }
}

TEST(CpuRowOps, GatesAndTheirGradients) {
  for (const Gate act : {Gate::kSilu, Gate::kGeluTanh})
    each_case([&](const RowOps& ops, DType dtype, int64_t count) {
      const HostArray gate = trial_numbers({dtype, {count}}, 1, 6), up = trial_numbers({dtype, {count}}, 2),
                      d = trial_numbers({dtype, {count}}, 3);
      Fenced out(dtype, count), d_gate(dtype, count), d_up(dtype, count);
      ops.gated(act, dtype, count, gate.data(), up.data(), out.data());
      ops.gated_gradient(act, dtype, count, gate.data(), up.data(), d.data(), d_gate.data(), d_up.data());
      const auto x = doubles(gate), u = doubles(up), change = doubles(d);
      std::vector<double> wanted, wanted_gate, wanted_up;
      for (size_t i = 0; i < x.size(); ++i) {
        auto value = [&](double v) {
          if (act == Gate::kSilu) return v / (1 + std::exp(-v));
          return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
        };
        constexpr double kStep = 1e-5;
        wanted.push_back(value(x[i]) * u[i]);
        wanted_up.push_back(value(x[i]) * change[i]);
        wanted_gate.push_back((value(x[i] + kStep) - value(x[i] - kStep)) / (2 * kStep) * u[i] * change[i]);
      }
      EXPECT_LT(relative_distance(out.values(), wanted), bound_of(dtype));
      EXPECT_LT(relative_distance(d_up.values(), wanted_up), bound_of(dtype));
      EXPECT_LT(relative_distance(d_gate.values(), wanted_gate), bound_of(dtype));
    });
}

TEST(CpuRowOps, GatesOfLargeNumbers) {
  for (const BlockOps* ops : usable_block_ops(DType::kF32)) {
    std::vector<float> gate{-1000, -100, -88, 0, 88, 1000}, up(6, 1), out(6), d_gate(6), d_up(6);
    ops->rows.gated(Gate::kSilu, DType::kF32, 6, gate.data(), up.data(), out.data());
    ops->rows.gated_gradient(Gate::kSilu, DType::kF32, 6, gate.data(), up.data(), up.data(), d_gate.data(),
                             d_up.data());
    const std::vector<float> values{0, 0, 0, 0, 88, 1000}, slopes{0, 0, 0, 0.5, 1, 1};
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(out[i], values[i], 1e-6) << ops->name << gate[i];
      EXPECT_NEAR(d_gate[i], slopes[i], 1e-6) << ops->name << gate[i];
    }
  }
}

TEST(CpuRowOps, NormsAndTheirGradients) {
  constexpr int64_t kRows = 2;
  constexpr double kEps = 1e-5;
  each_case([&](const RowOps& ops, DType dtype, int64_t width) {
    const Shape shape{dtype, {kRows * width}};
    const HostArray x = trial_numbers(shape, 1, 3), d = trial_numbers(shape, 2),
                    weight = trial_numbers({DType::kF32, {width}}, 3);
    Fenced y(dtype, kRows * width), dx(dtype, kRows * width), inverse(DType::kF32, kRows);
    const NormRows rows{dtype, kRows, width, x.data(), reinterpret_cast<const float*>(weight.data())};
    ops.norm(rows, static_cast<float>(kEps), y.data(), inverse.floats());
    ops.norm_gradient(rows, inverse.floats(), d.data(), dx.data());
    const auto in = doubles(x), w = doubles(weight), change = doubles(d);
    auto norm = [&](std::vector<double> row, int64_t i) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      return row[i] / std::sqrt(squares / static_cast<double>(width) + kEps) * w[i];
    };
    std::vector<double> wanted, wanted_dx;
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> row(in.begin() + r * width, in.begin() + (r + 1) * width);
      for (int64_t i = 0; i < width; ++i) {
        wanted.push_back(norm(row, i));
        constexpr double kStep = 1e-4;
        std::vector<double> more = row, less = row;
        more[i] += kStep, less[i] -= kStep;
        double sum = 0;
        for (int64_t j = 0; j < width; ++j)
          sum += (norm(more, j) - norm(less, j)) / (2 * kStep) * change[r * width + j];
        wanted_dx.push_back(sum);
      }
    }
    EXPECT_LT(relative_distance(y.values(), wanted), bound_of(dtype));
    EXPECT_LT(relative_distance(dx.values(), wanted_dx), 10 * bound_of(dtype));
    inverse.values();
  });
}

TEST(CpuRowOps, CrossEntropyAndItsGradient) {
  constexpr int64_t kRows = 6;
  each_case([&](const RowOps& ops, DType dtype, int64_t width) {
    HostArray logits = trial_numbers({DType::kF32, {kRows * width}}, 1, 8);
    const HostArray weights = trial_numbers({DType::kF32, {kRows}}, 2);
    const auto x = doubles(logits), weight = doubles(weights);
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < kRows; ++r) {
      targets.push_back(r == 2 ? -100 : static_cast<int32_t>(r * 31 % width));
      if (r != 4) continue;  // a row whose target has the largest logit
      const auto first = x.begin() + r * width;
      targets.back() = static_cast<int32_t>(std::max_element(first, first + width) - first);
    }
    Fenced losses(DType::kF32, kRows), hits(DType::kF32, kRows), slope(dtype, kRows * width);
    std::vector<float> scratch(width + 16);
    ops.cross_entropy({kRows, width, reinterpret_cast<const float*>(logits.data()), targets.data(),
                       reinterpret_cast<const float*>(weights.data()), dtype},
                      losses.floats(), hits.floats(), slope.data(), scratch.data());
    std::vector<double> wanted_loss, wanted_hit, wanted;
    for (int64_t r = 0; r < kRows; ++r) {
      const double* const row = &x[r * width];
      const bool trained = targets[r] >= 0;
      double sum = 0, top = row[0];
      for (int64_t i = 0; i < width; ++i) sum += std::exp(row[i]), top = std::max(top, row[i]);
      wanted_loss.push_back(trained ? std::log(sum) - row[targets[r]] : 0);
      wanted_hit.push_back(trained && row[targets[r]] == top ? 1 : 0);
      for (int64_t i = 0; i < width; ++i)
        wanted.push_back(trained ? weight[r] * (std::exp(row[i]) / sum - (i == targets[r] ? 1 : 0)) : 0);
    }
    EXPECT_LT(relative_distance(losses.values(), wanted_loss), 1e-6);
    EXPECT_EQ(hits.values(), wanted_hit);
    EXPECT_LT(relative_distance(slope.values(), wanted), bound_of(dtype));
  });
}

// Sums of a large vocabulary are divided into parts. Row 1 has logits of minus infinity, the target of row 2 is outside
// of the vocabulary, and row 3 is not trained. Without weights, all weights are 1.
TEST(CpuRowOps, CrossEntropyOfALargeVocabulary) {
  constexpr int64_t kRows = 4, kWidth = 5003;
  HostArray logits = trial_numbers({DType::kF32, {kRows * kWidth}}, 1, 8);
  auto* const number = reinterpret_cast<float*>(logits.data());
  for (int64_t i = 0; i < kWidth; i += 3) number[kWidth + i] = -INFINITY;
  const std::vector<int32_t> targets{5002, 100, 5003, -100};
  const auto x = doubles(logits);
  std::vector<double> wanted_loss, wanted;
  for (int64_t r = 0; r < kRows; ++r) {
    const double* const row = &x[r * kWidth];
    const bool trained = targets[r] >= 0, inside = targets[r] < kWidth;
    double sum = 0;
    for (int64_t i = 0; i < kWidth; ++i) sum += std::exp(row[i]);
    wanted_loss.push_back(trained ? std::log(sum) - (inside ? row[targets[r]] : 0) : 0);
    for (int64_t i = 0; i < kWidth; ++i)
      wanted.push_back(trained ? std::exp(row[i]) / sum - (i == targets[r] ? 1 : 0) : 0);
  }
  for (const BlockOps* ops : usable_block_ops(DType::kBF16)) {
    SCOPED_TRACE(ops->name);
    Fenced losses(DType::kF32, kRows), hits(DType::kF32, kRows), slope(DType::kF32, kRows * kWidth);
    std::vector<float> scratch(kWidth + 16);
    ops->rows.cross_entropy({kRows, kWidth, number, targets.data(), nullptr, DType::kF32}, losses.floats(),
                            hits.floats(), slope.data(), scratch.data());
    EXPECT_LT(relative_distance(losses.values(), wanted_loss), 1e-6);
    EXPECT_LT(relative_distance(slope.values(), wanted), 1e-6);
    EXPECT_EQ(hits.values()[3], 0);
  }
}

TEST(CpuRowOps, AStepOfAdamw) {
  const AdamwStep step{.divisor = 3,
                       .factor = 0.5F,
                       .beta1 = 0.9F,
                       .rest1 = 0.1F,
                       .beta2 = 0.98F,
                       .rest2 = 0.02F,
                       .epsilon = 1e-3F,
                       .correction2_sqrt = 0.25F,
                       .kept = 0.95F,
                       .rate = 0.125F};
  for (const BlockOps* ops : usable_block_ops(DType::kF32))
    for (const int64_t count : {1, 16, 77, 1003}) {
      SCOPED_TRACE(testing::Message() << ops->name << ' ' << count);
      const Shape shape{DType::kF32, {count}};
      const HostArray g = trial_numbers(shape, 1), w = trial_numbers(shape, 2), m = trial_numbers(shape, 3);
      HostArray v = trial_numbers(shape, 4);
      for (int64_t i = 0; i < count; ++i) v.as<float>()[i] = std::abs(v.as<float>()[i]);
      std::vector<double> new_w, new_m, new_v;
      for (int64_t i = 0; i < count; ++i) {
        const double grad = doubles(g)[i] / 3 * 0.5;
        new_m.push_back(doubles(m)[i] * step.beta1 + grad * step.rest1);
        new_v.push_back(doubles(v)[i] * step.beta2 + grad * grad * step.rest2);
        const double root = std::sqrt(new_v.back()) / step.correction2_sqrt + step.epsilon;
        new_w.push_back(doubles(w)[i] * step.kept - step.rate * new_m.back() / root);
      }
      Fenced to_w(DType::kF32, count), to_m(DType::kF32, count), to_v(DType::kF32, count);
      ops->rows.adamw(step, count, g.as<float>().data(), w.as<float>().data(), m.as<float>().data(),
                      v.as<float>().data(), to_w.floats(), to_m.floats(), to_v.floats());
      EXPECT_LT(relative_distance(to_w.values(), new_w), 1e-6);
      EXPECT_LT(relative_distance(to_m.values(), new_m), 1e-6);
      EXPECT_LT(relative_distance(to_v.values(), new_v), 1e-6);
      Fenced in_w(DType::kF32, count), in_m(DType::kF32, count), in_v(DType::kF32, count);
      std::copy_n(w.as<float>().data(), count, in_w.floats());
      std::copy_n(m.as<float>().data(), count, in_m.floats());
      std::copy_n(v.as<float>().data(), count, in_v.floats());
      ops->rows.adamw(step, count, g.as<float>().data(), in_w.floats(), in_m.floats(), in_v.floats(), in_w.floats(),
                      in_m.floats(), in_v.floats());
      EXPECT_EQ(in_w.values(), to_w.values()) << "in place";
      EXPECT_EQ(in_m.values(), to_m.values()) << "in place";
      EXPECT_EQ(in_v.values(), to_v.values()) << "in place";
    }
}

TEST(CpuRowOps, WeightsOfFourBits) {
  constexpr int64_t kBlock = 64;
  CodePairs pairs;
  const auto value_of = [](int code) { return 0.125F * static_cast<float>(code) - 0.7F; };
  for (int byte = 0; byte < 256; ++byte)
    pairs.of[byte][0] = value_of(byte / 16), pairs.of[byte][1] = value_of(byte % 16);
  for (const BlockOps* ops : usable_block_ops(DType::kBF16))
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const int64_t count : {1, 31, 64, 100, 128, 333}) {
        SCOPED_TRACE(testing::Message() << ops->name << ' ' << stablehlo_name(dtype) << ' ' << count);
        std::vector<uint8_t> codes;
        for (int64_t i = 0; i < (count + 1) / 2; ++i) codes.push_back(static_cast<uint8_t>(i * 37 + 11));
        const HostArray absmax = trial_numbers({DType::kF32, {(count + kBlock - 1) / kBlock}}, 1, 3);
        HostArray wanted(Shape{DType::kF32, {count}});
        for (int64_t i = 0; i < count; ++i) {
          const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
          wanted.as<float>()[i] = value_of(code) * absmax.as<float>()[i / kBlock];
        }
        Fenced out(dtype, count);
        ops->rows.dequantise(dtype, count, codes.data(), absmax.as<float>().data(), pairs, out.data());
        if (dtype == DType::kF32) {
          EXPECT_EQ(out.values(), doubles(wanted));
        }
        EXPECT_LT(relative_distance(out.values(), doubles(wanted)), bound_of(dtype));
      }
}

}  // namespace
}  // namespace fettle::cpu
