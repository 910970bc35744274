// Compares the layers that families share with plain loops in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/files/json_file.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/attention.h"
#include "models/blocks/experts/moe.h"
#include "models/blocks/layers.h"
#include "models/blocks/rope.h"
#include "reference_models.h"

namespace fettle {
namespace {

constexpr int64_t kD = 8;

TEST(Layers, Norms) {
  const Value x = random_value({DType::kF32, {3, kD}}, 1, -3, 5), w = random_value({DType::kF32, {kD}}, 2);
  const Value b = random_value({DType::kF32, {kD}}, 3);
  GraphRun run;
  const Tensor xs = run.input(x), ws = run.input(w), bs = run.input(b);
  run.output("rms", rms_norm(xs, ws, 1e-2));
  run.output("rms of 1 + w", rms_norm(xs, ws, 1e-2, 1));
  run.output("layer", layer_norm(xs, ws, bs, 1e-2));
  run.output("bf16", convert(rms_norm(convert(xs, DType::kBF16), ws, 1e-2), DType::kF32));
  const std::map<std::string, Value> got = run.run();
  for (int64_t r = 0; r < 3; ++r) {
    double square = 0, mean = 0, variance = 0;
    for (int64_t d = 0; d < kD; ++d) {
      square += x.elements[r * kD + d] * x.elements[r * kD + d] / kD;
      mean += x.elements[r * kD + d] / kD;
    }
    for (int64_t d = 0; d < kD; ++d) variance += std::pow(x.elements[r * kD + d] - mean, 2) / kD;
    for (int64_t d = 0; d < kD; ++d) {
      const int64_t at = r * kD + d;
      const double rms = x.elements[at] / std::sqrt(square + 1e-2) * w.elements[d];
      EXPECT_NEAR(got.at("rms").elements[at], rms, 2e-6);
      EXPECT_NEAR(got.at("rms of 1 + w").elements[at], rms / w.elements[d] * (1 + w.elements[d]), 4e-6);
      EXPECT_NEAR(got.at("bf16").elements[at], rms, 2e-2);
      EXPECT_NEAR(got.at("layer").elements[at],
                  (x.elements[at] - mean) / std::sqrt(variance + 1e-2) * w.elements[d] + b.elements[d], 2e-6);
    }
  }
}

// Step sizes of Mamba2 are the softplus of numbers down to about -16, so their relative error counts.
TEST(Layers, SoftplusOfSmallAndLargeNumbers) {
  Value x{{DType::kF32, {121}}, {}};
  for (int i = 0; i < 121; ++i) x.elements.push_back(-30 + 0.5 * i);
  GraphRun run;
  const Tensor xs = run.input(x);
  run.output("softplus", softplus(xs));
  run.output("log_sigmoid", log_sigmoid(xs));
  run.output("slope", grad(reduce_sum(softplus(xs), {0}), {xs})[0]);
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < 121; ++i) {
    const double at = x.elements[i], wanted = std::max(at, 0.0) + std::log1p(std::exp(-std::abs(at)));
    EXPECT_NEAR(got.at("softplus").elements[i], wanted, 4e-6 * wanted) << at;
    const double other = -std::max(-at, 0.0) - std::log1p(std::exp(-std::abs(at)));
    EXPECT_NEAR(got.at("log_sigmoid").elements[i], other, 4e-6 * std::abs(other)) << at;
    const double slope = 1 / (1 + std::exp(-at));
    EXPECT_NEAR(got.at("slope").elements[i], slope, 4e-6 * slope) << at;
  }
}

// The token of a slot is slot / k, rounded down. This must be exact also for slots from 2^23 on, where f32 cannot
// represent numbers that end in .5.
TEST(Experts, TokensOfManySlots) {
  GraphRun run;
  const Tensor near = iota({DType::kI32, {1000}}, 0);
  const std::vector<double> starts{0, 8388608 - 500, 16777216 - 500, 2147483647 - 1000};
  for (const int64_t k : {1, 2, 3, 8})
    for (double start : starts) run.output(fmt::format("{} {}", k, start), token_of_slot(near + start, k));
  const std::map<std::string, Value> got = run.run();
  for (const int64_t k : {1, 2, 3, 8})
    for (double start : starts)
      for (int64_t i = 0; i < 1000; ++i)
        ASSERT_EQ(got.at(fmt::format("{} {}", k, start)).elements[i], std::floor((start + i) / k)) << start + i;
}

TEST(Layers, Activations) {
  const std::vector<double> xs{-4, -1, -0.1, 0, 0.5, 2, 6};
  GraphRun run;
  const Tensor x = run.input(f32({7}, xs));
  for (const char* name : {"silu", "relu", "gelu", "gelu_new", "gelu_pytorch_tanh"})
    run.output(name, activation(name, x));
  run.output("slope of relu", grad(reduce_sum(activation("relu", x), {0}), {x})[0]);
  run.output("relu of nan", activation("relu", constant(std::nan(""), DType::kF32)));
  const std::map<std::string, Value> got = run.run();
  EXPECT_EQ(got.at("slope of relu").elements, (std::vector<double>{0, 0, 0, 0, 1, 1, 1})) << "0 at 0, as in PyTorch";
  EXPECT_TRUE(std::isnan(got.at("relu of nan").elements[0]));
  for (size_t i = 0; i < xs.size(); ++i) {
    const double v = xs[i];
    const double gelu = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    EXPECT_NEAR(got.at("silu").elements[i], v / (1 + std::exp(-v)), 1e-6);
    EXPECT_NEAR(got.at("relu").elements[i], std::max(v, 0.0), 0);
    EXPECT_NEAR(got.at("gelu").elements[i], 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))), 1e-6);
    EXPECT_NEAR(got.at("gelu_new").elements[i], gelu, 1e-6);
    EXPECT_NEAR(got.at("gelu_pytorch_tanh").elements[i], gelu, 1e-6);
  }
}

// Transformers rounds Gemma's factor on the embedding to bf16. It does not round the factors of other families.
TEST(Layers, EmbeddingScaleIsRoundedOnlyForGemma) {
  const ShardingRules rules{MeshAxes{}};
  const Weights none;
  for (const bool rounds : {false, true}) {
    ModelConfig config =
        make_model(read_json_file(reference_model(rounds ? "gemma" : "granite") / "config.json"), "config.json").config;
    EXPECT_EQ(config.rounds_embedding_scale, rounds);
    config.embedding_scale = 0.22;
    const Forward f{.config = config, .weights = none, .sharding = rules, .compute = DType::kBF16};
    GraphRun run;
    std::vector<double> values;
    for (int i = 0; i < 128; ++i) values.push_back(1 + i / 128.0);  // bf16 holds these numbers
    const Tensor table = run.input(bf16({2, 64}, values));
    run.output("rows", embed(f, table, run.input(i32({1, 2}, {0, 1}))));
    const float factor = rounds ? bf16_to_f32(f32_to_bf16(0.22f)) : 0.22f;
    const std::vector<double> got = run.run().at("rows").elements;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(got[i], bf16_to_f32(f32_to_bf16(static_cast<float>(values[i]) * factor))) << i;
  }
}

// NEFTune's hook adds noise to the result of the table's module. In Transformers, the scale of Gemma belongs to this
// module, and Granite and Falcon-H1 multiply its result.
TEST(Layers, NoiseIsAddedAfterTheScaleOnlyForGemma) {
  const ShardingRules rules{MeshAxes{}};
  const Weights none;
  for (const bool gemma : {false, true}) {
    ModelConfig config;
    config.embedding_scale = 12;
    config.rounds_embedding_scale = gemma;
    Forward f{.config = config, .weights = none, .sharding = rules};
    f.disturb = [](const Tensor& x) { return x + 0.5; };
    GraphRun run;
    run.output("rows", embed(f, run.input(f32({2, 1}, {1, 2})), run.input(i32({1, 2}, {0, 1}))));
    const std::vector<double> wanted = gemma ? std::vector{12.5, 24.5} : std::vector{18.0, 30.0};
    EXPECT_EQ(run.run().at("rows").elements, wanted) << gemma;
  }
}

TEST(Layers, SoftCap) {
  const std::vector<double> xs{-40, -4, 0, 0.5, 3, 100};
  GraphRun run;
  const Tensor x = run.input(f32({6}, xs));
  run.output("capped", soft_cap(x, 5));
  run.output("free", soft_cap(x, 0));
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < xs.size(); ++i) {
    EXPECT_NEAR(got.at("capped").elements[i], 5 * std::tanh(xs[i] / 5), 2e-6);
    EXPECT_EQ(got.at("free").elements[i], xs[i]);
  }
}

TEST(Layers, AlibiSlopes) {
  EXPECT_EQ(alibi_slopes(8), (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}));
  const std::vector<double> twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12u);
  EXPECT_EQ(twelve[7], 0.00390625);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(twelve[8 + i], std::pow(2.0, -(static_cast<double>(i) + 0.5)), 1e-12);
}

// In each head, the first R dims are rotated: dims i and i + R/2 by the position times the frequency of i. The other
// dims do not change. With longrope, the frequencies depend on the row's length.
TEST(Layers, RopeRotatesDims) {
  constexpr int64_t kHead = 8;
  const Value x = random_value({DType::kF32, {2, 3, 1, kHead}}, 4);
  const std::vector<double> positions{0, 1, 50, 0, 1, 2};
  RopeParameters plain, linear, part, longrope, dynamic;
  plain.rope_theta = linear.rope_theta = part.rope_theta = longrope.rope_theta = dynamic.rope_theta = 100;
  linear.rope_type = "linear";
  linear.factor = 4;
  part.partial_rotary_factor = 0.5;
  longrope.rope_type = "longrope";
  longrope.original_max_position_embeddings = 50;
  longrope.short_factor = {1, 2, 3, 4};
  longrope.long_factor = {5, 6, 7, 8};
  longrope.attention_factor = 1.5;
  dynamic.rope_type = "dynamic";
  dynamic.factor = 3;
  dynamic.original_max_position_embeddings = 10;
  GraphRun run;
  const Tensor at = run.input(i32({2, 3}, positions)), given = run.input(i32({2}, {50, 51}));
  const Tensor xs = run.input(x);
  auto turned = [&](const RopeParameters& rope, const Tensor& lengths = {}) {
    return apply_rope(rope_tables(rope, kHead, at, lengths), xs);
  };
  run.output("plain", turned(plain));
  run.output("linear", turned(linear));
  run.output("part", turned(part));
  run.output("dynamic", turned(dynamic));
  run.output("longrope", turned(longrope));
  run.output("longrope of given lengths", turned(longrope, given));
  const std::map<std::string, Value> got = run.run();
  for (const auto& [name, value] : got)
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t t = 0; t < 3; ++t) {
        const int64_t half = name == "part" ? 2 : 4, first = (row * 3 + t) * kHead;
        const bool is_long = name == "longrope" ? row == 0 : row == 1;
        for (int64_t i = 0; i < half; ++i) {
          double frequency = std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
          if (name == "linear") frequency /= 4;
          if (name == "dynamic" && row == 0) {  // Transformers' formula for 51 positions
            const double base = 100 * std::pow(3 * 51.0 / 10 - 2, kHead / (kHead - 2.0));
            frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
          }
          if (name.starts_with("longrope"))
            frequency /= (is_long ? longrope.long_factor : longrope.short_factor)[static_cast<size_t>(i)];
          const double angle = positions[row * 3 + t] * frequency, scale = name.starts_with("longrope") ? 1.5 : 1;
          const double a = x.elements[first + i] * scale, b = x.elements[first + i + half] * scale;
          EXPECT_NEAR(value.elements[first + i], a * std::cos(angle) - b * std::sin(angle), 1e-5) << name << t << i;
          EXPECT_NEAR(value.elements[first + i + half], b * std::cos(angle) + a * std::sin(angle), 1e-5) << name;
        }
        for (int64_t i = 2 * half; i < kHead; ++i) EXPECT_EQ(value.elements[first + i], x.elements[first + i]);
      }
}

}  // namespace
}  // namespace fettle
