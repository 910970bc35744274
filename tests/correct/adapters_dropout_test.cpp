// Tests dropout masks: what they depend on, the share of elements that they keep, and the gradient through them.
#include <gtest/gtest.h>

#include <set>

#include "adapters/lora.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/random.h"
#include "graph_run.h"

namespace fettle {
namespace {

constexpr int64_t kB = 8, kT = 16, kD = 32;

// Returns a dropout key for rows 1 to b of t positions, each in its own line.
PositionKey key_of(int64_t b, int64_t t, const Tensor& seed) {
  const Shape places{DType::kI32, {b, t}};
  return {seed, iota(places, 0) + 1.0, iota(places, 1)};
}

// A module whose LoRA weights are two identity matrices, with alpha / rank = 1. The base layer's result is taken as
// 0, so the adapted result is dropout(x).
struct Identity {
  Layer layer;
  Tensor zero;

  Identity(const std::vector<std::string>& modules, const Tensor& index, const Tensor& x) : layer{index, {}} {
    std::vector<double> eye(kD * kD, 0);
    for (int64_t i = 0; i < kD; ++i) eye[i * kD + i] = 1;
    for (const std::string& module : modules)
      for (const char* part : {".lora_A.weight", ".lora_B.weight"})
        layer.weights[module + part] = literal(eye, {x.dtype(), {kD, kD}});
    zero = zeros_like(x);
  }
  Tensor operator()(const std::string& module, const Tensor& x, double rate, const Tensor& seed) const {
    const PositionKey key = key_of(x.dim(0), x.dim(1), seed);
    return lora_adapt({.rank = kD, .alpha = kD, .dropout = rate}, x.dtype(), &key)(layer, module, x, zero);
  }
};

int64_t count_different(const Value& a, const Value& b) {
  int64_t n = 0;
  for (size_t e = 0; e < a.elements.size(); ++e) n += a.elements[e] != b.elements[e];
  return n;
}

TEST(Dropout, MasksDependOnSeedLayerAndModuleAlone) {
  GraphRun run;
  const Shape shape{DType::kF32, {kB, kT, kD}};
  const Tensor ones = full(1, shape), seed = run.input(u32({}, {12345})), other = run.input(u32({}, {12346}));
  const Identity first({"q", "k"}, constant(0, DType::kI32), ones), second({"q", "k"}, constant(1, DType::kI32), ones);
  run.output("base", first("q", ones, 0.25, seed));
  run.output("again", first("q", ones, 0.25, seed));
  run.output("other seed", first("q", ones, 0.25, other));
  run.output("other layer", second("q", ones, 0.25, seed));
  run.output("other module", first("k", ones, 0.25, seed));
  run.output("other values", first("q", ones * 3.0, 0.25, seed));
  run.output("higher rate", first("q", ones, 0.5, seed));
  run.output("none", first("q", ones, 0, seed));
  run.output("without a key", lora_adapt({.rank = kD, .alpha = kD, .dropout = 0.25}, DType::kF32, nullptr)(
                                  first.layer, "q", ones, first.zero));
  run.output("no pair", first("v", ones, 0.25, seed));
  std::map<std::string, Value> got = run.run();

  const Value& base = got.at("base");
  const auto n = static_cast<double>(base.elements.size());
  int64_t kept = 0;
  for (double x : base.elements) {
    EXPECT_TRUE(x == 0 || std::abs(x - 1 / 0.75) < 1e-6) << x;
    kept += x != 0;
  }
  // The bound is four standard deviations of a binomial share.
  EXPECT_NEAR(static_cast<double>(kept) / n, 0.75, 4 * std::sqrt(0.75 * 0.25 / n));
  EXPECT_EQ(count_different(got.at("again"), base), 0);
  for (const char* name : {"other seed", "other layer", "other module"}) {
    // Two independent masks differ in an element if exactly one of them drops it.
    const double share = static_cast<double>(count_different(got.at(name), base)) / n;
    EXPECT_NEAR(share, 2 * 0.75 * 0.25, 4 * std::sqrt(0.375 * 0.625 / n)) << name;
  }
  for (size_t e = 0; e < base.elements.size(); ++e) {
    EXPECT_NEAR(got.at("other values").elements[e], 3 * base.elements[e], 1e-5);
    if (base.elements[e] != 0) continue;
    EXPECT_EQ(got.at("higher rate").elements[e], 0) << "a higher rate drops the same elements and more";
  }
  EXPECT_EQ(got.at("none").elements, std::vector<double>(base.elements.size(), 1));
  EXPECT_EQ(got.at("without a key").elements, std::vector<double>(base.elements.size(), 1));
  EXPECT_EQ(got.at("no pair").elements, std::vector<double>(base.elements.size(), 0));
}

// No row, position or feature is dropped more often than another.
TEST(Dropout, RowsPositionsAndFeaturesAreDroppedEquallyOften) {
  GraphRun run;
  const Tensor bits = random_bits_of_positions(kD, key_of(kB, 256, run.input(u32({}, {7}))));
  const Tensor kept = convert(compare(bits, Direction::kGE, constant(0.25 * 4294967296.0, DType::kU32)), DType::kF32);
  run.output("rows", reduce_sum(kept, {1, 2}) / (256.0 * kD));
  run.output("positions", reduce_sum(kept, {0, 2}) / static_cast<double>(kB * kD));
  run.output("features", reduce_sum(kept, {0, 1}) / (256.0 * kB));
  // Neighbouring features are independent: the chance to keep both is the product of their chances.
  run.output("pairs",
             reduce_sum(slice(kept, 2, 1, kD) * slice(kept, 2, 0, kD - 1), {0, 1, 2}) / (256.0 * kB * (kD - 1)));
  for (auto& [name, value] : run.run()) {
    const double chance = name == "pairs" ? 0.75 * 0.75 : 0.75;
    const double samples = name == "pairs"       ? 256.0 * kB * (kD - 1)
                           : name == "rows"      ? 256.0 * kD
                           : name == "positions" ? static_cast<double>(kB * kD)
                                                 : 256.0 * kB;
    for (double share : value.elements)
      EXPECT_NEAR(share, chance, 5 * std::sqrt(chance * (1 - chance) / samples)) << name;
  }
}

// A row has the same mask wherever it is in the batch. Here, rows 3 and 1 share the second line.
TEST(Dropout, MasksFollowTheRow) {
  constexpr int64_t kLength = 6, kLine = 2 * kLength;
  GraphRun run;
  const Tensor seed = run.input(u32({}, {7}));
  run.output("own lines", random_bits_of_positions(kD, key_of(3, kLength, seed)));
  const Value rows{{DType::kI32, {2, kLine}}, {0, 0, 0, 2, 2, 2, 2, 2, 2, 0, 0, 0, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1}};
  const Value places{{DType::kI32, {2, kLine}},
                     {0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}};
  run.output("shared lines", random_bits_of_positions(kD, {seed, run.input(rows), run.input(places)}));
  const std::map<std::string, Value> got = run.run();
  std::set<std::vector<double>> masks;
  for (int64_t line = 0; line < 2; ++line)
    for (int64_t t = 0; t < kLine; ++t) {
      const auto at = static_cast<size_t>(line * kLine + t);
      if (rows.elements[at] == 0) continue;
      const auto own = static_cast<int64_t>((rows.elements[at] - 1) * kLength + places.elements[at]);
      auto features = [&](const char* name, int64_t position) {
        const auto first = got.at(name).elements.begin() + position * kD;
        return std::vector<double>(first, first + kD);
      };
      EXPECT_EQ(features("shared lines", static_cast<int64_t>(at)), features("own lines", own)) << line << ' ' << t;
      masks.insert(features("own lines", own));
    }
  EXPECT_EQ(masks.size(), 3u * kLength) << "each position has a mask of its own";
}

TEST(Dropout, GradientAgreesWithFiniteDifferencesAtAFixedSeed) {
  GraphRun run;
  const Shape shape{DType::kF64, {2, 3, kD}};
  const Tensor x = run.input(random_value(shape, 1)), direction = run.input(random_value(shape, 2));
  const Tensor seed = run.input(u32({}, {99}));
  const Identity module({"q"}, constant(0, DType::kI32), x);
  auto loss = [&](const Tensor& at) {
    const Tensor dropped = module("q", at, 0.3, seed);
    return reduce_sum(dropped * dropped * dropped, {0, 1, 2});
  };
  const double h = 1e-5;
  run.output("numeric", (loss(x + direction * h) - loss(x - direction * h)) / (2 * h));
  const Tensor gradient = grad(loss(x), {x})[0];
  run.output("analytic", reduce_sum(gradient * direction, {0, 1, 2}));
  run.output("gradient", gradient);
  run.output("dropped", module("q", x, 0.3, seed));
  const std::map<std::string, Value> got = run.run();
  EXPECT_GT(std::abs(got.at("numeric").elements[0]), 0.1);
  EXPECT_NEAR(got.at("analytic").elements[0], got.at("numeric").elements[0], 1e-6);
  for (size_t e = 0; e < got.at("dropped").elements.size(); ++e)
    EXPECT_EQ(got.at("dropped").elements[e] == 0, got.at("gradient").elements[e] == 0) << e;
}

}  // namespace
}  // namespace fettle
