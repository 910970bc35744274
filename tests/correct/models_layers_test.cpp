// The layers that families share beside plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "graph/ops.h"
#include "graph_run.h"
#include "models/layers.h"

namespace fettle {
namespace {

constexpr int64_t kD = 8;

TEST(Layers, Norms) {
  const Value x = random_value({DType::kF32, {3, kD}}, 1, -3, 5), w = random_value({DType::kF32, {kD}}, 2);
  const Value b = random_value({DType::kF32, {kD}}, 3);
  GraphRun run;
  const Tensor xs = run.input(x), ws = run.input(w), bs = run.input(b);
  run.output("rms", rms_norm(xs, ws, 1e-2));
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
      EXPECT_NEAR(got.at("bf16").elements[at], rms, 2e-2);
      EXPECT_NEAR(got.at("layer").elements[at],
                  (x.elements[at] - mean) / std::sqrt(variance + 1e-2) * w.elements[d] + b.elements[d], 2e-6);
    }
  }
}

TEST(Layers, Activations) {
  const std::vector<double> xs{-4, -1, -0.1, 0, 0.5, 2, 6};
  GraphRun run;
  const Tensor x = run.input(f32({7}, xs));
  for (const char* name : {"silu", "relu", "gelu_new", "gelu_pytorch_tanh"}) run.output(name, activation(name, x));
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < xs.size(); ++i) {
    const double v = xs[i];
    const double gelu = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    EXPECT_NEAR(got.at("silu").elements[i], v / (1 + std::exp(-v)), 1e-6);
    EXPECT_NEAR(got.at("relu").elements[i], std::max(v, 0.0), 0);
    EXPECT_NEAR(got.at("gelu_new").elements[i], gelu, 1e-6);
    EXPECT_NEAR(got.at("gelu_pytorch_tanh").elements[i], gelu, 1e-6);
  }
}

// Pairs (i, i + H/2) turn by position times frequency; scores depend on the distance of positions alone.
TEST(Layers, RopeTurnsPairs) {
  ModelConfig config;
  config.head_dim = 8;
  config.rope.rope_theta = 100;
  const Value x = random_value({DType::kF32, {1, 3, 1, 8}}, 4);
  const std::vector<double> positions{0, 1, 50};
  GraphRun run;
  const Tensor at = run.input(i32({1, 3}, positions));
  run.output("plain", apply_rope(rope_tables(config, at), run.input(x)));
  config.rope.rope_type = "linear";
  config.rope.factor = 4;
  run.output("linear", apply_rope(rope_tables(config, at), run.input(x)));
  const std::map<std::string, Value> got = run.run();
  for (const auto& [name, factor] : {std::pair<const char*, double>{"plain", 1}, {"linear", 4}})
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t i = 0; i < 4; ++i) {
        const double angle = positions[t] / factor * std::pow(100.0, -2.0 * static_cast<double>(i) / 8);
        const double a = x.elements[t * 8 + i], b = x.elements[t * 8 + i + 4];
        EXPECT_NEAR(got.at(name).elements[t * 8 + i], a * std::cos(angle) - b * std::sin(angle), 1e-5)
            << name << t << i;
        EXPECT_NEAR(got.at(name).elements[t * 8 + i + 4], b * std::cos(angle) + a * std::sin(angle), 1e-5)
            << name << t << i;
      }
}

}  // namespace
}  // namespace fettle
