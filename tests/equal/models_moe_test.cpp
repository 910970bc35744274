// Tests that a mixture of experts equals the weighted sum over all experts applied to every token, for any routing and
// mesh. Results and gradients are compared: with all tokens sent to two experts, with idle experts, and balanced.
#include <gtest/gtest.h>

#include <numeric>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/experts/balance.h"
#include "models/blocks/experts/moe.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int64_t kExperts = 8, kWidth = 16, kInner = 24;

ModelConfig config_of(bool normalised) {
  ModelConfig config;
  config.mlp = Mlp::kExperts;
  config.experts = {"gate", "experts.{}.w1", "experts.{}.w3", "experts.{}.w2"};
  config.num_experts = kExperts;
  config.experts_per_token = 2;
  config.routing.normalised = normalised;
  config.hidden_size = kWidth;
  config.expert_size = kInner;
  config.num_hidden_layers = 1;
  return config;
}

// Returns router weights that add favour[e] to the score of expert e, because the first element of each token is 1.
Value router_of(const std::vector<double>& favour) {
  Value out = random_value({DType::kF32, {kExperts, kWidth}}, 5, -0.5, 0.5);
  for (int64_t e = 0; e < kExperts; ++e) out.elements[static_cast<size_t>(e * kWidth)] = favour[static_cast<size_t>(e)];
  return out;
}

Value tokens_of(int64_t rows, int64_t length) {
  Value out = random_value({DType::kF32, {rows, length, kWidth}}, 6);
  for (size_t i = 0; i < out.elements.size(); i += kWidth) out.elements[i] = 1;
  return out;
}

// Computes the mixture by its definition, with the router of moe.cpp: the k largest values of a softmax.
Tensor every_expert(const ModelConfig& c, const Layer& layer, const Tensor& x) {
  const Tensor scores = dot_general(x, layer["gate.weight"], {.lhs_contracting = {2}, .rhs_contracting = {1}});
  const Tensor powers = exp(scores);
  const Tensor likely = powers / expand(reduce_sum(powers, {-1}), -1);
  const Tensor first = expand(reduce_max(likely, {-1}), -1);
  const Tensor others = select(compare(likely, Direction::kLT, first), likely, constant(-1, DType::kF32));
  const Tensor second = expand(reduce_max(others, {-1}), -1);
  Tensor weights =
      select(compare(stop_gradient(likely), Direction::kGE, stop_gradient(second)), likely, constant(0, DType::kF32));
  if (c.routing.normalised) weights = weights / expand(reduce_sum(weights, {-1}), -1);
  Tensor out = full(0, x.shape());
  for (int64_t e = 0; e < kExperts; ++e) {
    auto times = [&](const Tensor& value, const std::string& module) {
      const Tensor all = layer["experts.{}." + module + ".weight"];
      const Tensor weight = reshape(slice(all, 0, e, e + 1), {all.dim(1), all.dim(2)});
      return dot_general(value, weight, {.lhs_contracting = {2}, .rhs_contracting = {1}});
    };
    const Tensor y = times(activation("silu", times(x, "w1")) * times(x, "w3"), "w2");
    out = out + y * slice(weights, 2, e, e + 1);
  }
  return out;
}

struct Routing {
  std::string name;
  std::vector<double> favour;
  std::map<std::string, int64_t> mesh;
  int64_t rows = 4, length = 24;
  bool normalised = true;
};

class Mixture : public testing::TestWithParam<Routing> {};

TEST_P(Mixture, EqualsEveryExpert) {
  const Routing& s = GetParam();
  int64_t devices = 1;
  for (const auto& [axis, size] : s.mesh) devices *= size;
  const ModelConfig config = config_of(s.normalised);
  const ShardingRules rules{make_mesh(s.mesh, devices)};
  GraphRun run(rules.mesh());
  auto add = [&](const Value& value, const LogicalAxes& axes) {
    return run.input(value, rules.partition(axes, value.shape.dims, "an input"));
  };
  const Tensor x = add(tokens_of(s.rows, s.length), {"batch", "length", ""});
  const Tensor cotangent = run.input(random_value({DType::kF32, {s.rows, s.length, kWidth}}, 7));
  Layer layer;
  layer.weights["gate.weight"] = run.input(router_of(s.favour));
  auto expert = [&](uint32_t seed, const Dims& dims, const LogicalAxes& axes) {
    return add(random_value({DType::kF32, dims}, seed, -0.4, 0.4), axes);
  };
  layer.weights["experts.{}.w1.weight"] = expert(1, {kExperts, kInner, kWidth}, {"experts", "mlp", "embed"});
  layer.weights["experts.{}.w3.weight"] = expert(2, {kExperts, kInner, kWidth}, {"experts", "mlp", "embed"});
  layer.weights["experts.{}.w2.weight"] = expert(3, {kExperts, kWidth, kInner}, {"experts", "embed", "mlp"});
  Tensors inputs{x};
  for (const auto& [name, weight] : layer.weights) inputs.push_back(weight);
  const Weights none;
  Forward f{.config = config, .weights = none, .sharding = rules};
  for (const std::string name : {"mixture", "definition"}) {
    const Tensor out = name == "mixture" ? experts_mlp(f, layer, x) : every_expert(config, layer, x);
    run.output(name, out);
    const Tensors grads = grad(reduce_sum(out * cotangent, {0, 1, 2}), inputs);
    for (size_t i = 0; i < grads.size(); ++i) run.output(name + std::to_string(i), grads[i]);
  }
  const std::map<std::string, Value> got = run.run();
  for (const char* part : {"", "0", "1", "2", "3", "4"}) {
    const Value &a = got.at(std::string("mixture") + part), &b = got.at(std::string("definition") + part);
    ASSERT_EQ(a.shape, b.shape);
    double largest = 0;
    for (size_t e = 0; e < a.elements.size(); ++e) largest = std::max(largest, std::abs(b.elements[e]));
    EXPECT_GT(largest, 1e-3) << part << ": nothing to compare";
    for (size_t e = 0; e < a.elements.size(); ++e)
      ASSERT_NEAR(a.elements[e], b.elements[e], 1e-5 * largest) << part << ' ' << e;
  }
}

const std::vector<double> kBalanced(kExperts, 0), kToTwo{9, 0, 0, 0, 0, 7, 0, 0}, kIdle{1, -9, 1, -9, 1, 1, -9, -9};

// In the case "uneven_ep8", the mesh axis divides neither the number of rows nor the number of positions. In the case
// "few_tokens", there are fewer tokens than experts.
INSTANTIATE_TEST_SUITE_P(Routings, Mixture,
                         testing::Values(Routing{"balanced", kBalanced, {}}, Routing{"to_two", kToTwo, {}},
                                         Routing{"idle", kIdle, {}}, Routing{"not_normalised", kIdle, {}, 4, 24, false},
                                         Routing{"balanced_ep8", kBalanced, {{"ep", 8}}, 8},
                                         Routing{"to_two_ep8", kToTwo, {{"ep", 8}}, 8},
                                         Routing{"to_two_ep4tp2", kToTwo, {{"ep", 4}, {"tp", 2}}},
                                         Routing{"idle_fsdp2ep4", kIdle, {{"fsdp", 2}, {"ep", 4}}, 8},
                                         Routing{"idle_dp2ep2sp2", kIdle, {{"dp", 2}, {"ep", 2}, {"sp", 2}}},
                                         Routing{"uneven_ep8", kIdle, {{"ep", 8}}, 3, 23},
                                         Routing{"few_tokens", kBalanced, {}, 1, 3}),
                         [](const auto& info) { return info.param.name; });

// With equal scores, the first k = 2 experts are chosen, as by torch.topk. Equal probabilities give a balance loss of
// k.
TEST(Routes, BalanceLossOfEqualScores) {
  const ModelConfig config = config_of(true);
  const ShardingRules rules{MeshAxes{}};
  GraphRun run;
  const Tensor x = run.input(tokens_of(2, 8));
  Layer layer;
  layer.weights["gate.weight"] = run.input({{DType::kF32, {kExperts, kWidth}}, std::vector<double>(kExperts * kWidth)});
  for (const char* module : {"w1", "w3"})
    layer.weights[std::string("experts.{}.") + module + ".weight"] =
        run.input(random_value({DType::kF32, {kExperts, kInner, kWidth}}, 1));
  layer.weights["experts.{}.w2.weight"] = run.input(random_value({DType::kF32, {kExperts, kWidth, kInner}}, 2));
  const Weights none;
  Forward f{.config = config, .weights = none, .sharding = rules};
  Value documents{{DType::kI32, {2, 8}}, std::vector<double>(16, 1)};
  documents.elements[15] = documents.elements[14] = 0;
  f.segments = run.input(documents);
  f.router = no_routes(config);
  experts_mlp(f, layer, x);
  run.output("router", f.router);
  run.output("loss", balance_loss(f));
  const std::map<std::string, Value> got = run.run();
  for (int64_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(got.at("router").elements[static_cast<size_t>(e)], e < 2 ? 14 : 0) << e;
    EXPECT_NEAR(got.at("router").elements[static_cast<size_t>(kExperts + e)], 14.0 / kExperts, 1e-6) << e;
  }
  EXPECT_NEAR(got.at("loss").elements[0], 2, 1e-6);
}

}  // namespace
}  // namespace fettle
