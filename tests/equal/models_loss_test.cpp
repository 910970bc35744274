// Tests that the loss that is computed in chunks equals the loss computed at once and the plain definition, forward and
// backward.
#include <gtest/gtest.h>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/loss.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

constexpr int64_t kB = 2, kT = 24, kD = 6, kV = 11;

const Value kHidden = random_value({DType::kF32, {kB, kT, kD}}, 1, -2, 2);
const Value kHead = random_value({DType::kF32, {kV, kD}}, 2, -1, 1);
const Value kBias = random_value({DType::kF32, {kV}}, 3, -1, 1);

// Returns the targets. Every third position and the end of the first row are not trained.
Value targets() {
  Value out{{DType::kI32, {kB, kT}}, {}};
  for (int64_t i = 0; i < kB * kT; ++i)
    out.elements.push_back(i % 3 == 0 || (i > 15 && i < kT) ? -100 : static_cast<double>(i * 7 % kV));
  return out;
}

// Returns the cross-entropy of one position, computed in double, and the index of its largest logit.
std::pair<double, int64_t> reference(int64_t position, int64_t target, bool biased) {
  std::vector<double> logits(kV, 0);
  if (biased) std::ranges::copy(kBias.elements, logits.begin());
  for (int64_t v = 0; v < kV; ++v)
    for (int64_t d = 0; d < kD; ++d) logits[v] += kHidden.elements[position * kD + d] * kHead.elements[v * kD + d];
  double total = 0;
  for (double x : logits) total += std::exp(x);
  return {std::log(total) - logits[target], std::max_element(logits.begin(), logits.end()) - logits.begin()};
}

// Computes the loss by its definition with ordinary ops, which are differentiated like any graph.
Tensor plain_loss(const Tensor& hidden, const TokenHead& head, const Tensor& targets) {
  Tensor scores = dot_general(hidden, head.weight_VD, {.lhs_contracting = {2}, .rhs_contracting = {1}});
  if (head.bias_V) scores = scores + head.bias_V;
  const Tensor log_total = log(reduce_sum(exp(scores), {-1}));
  const Tensor one_hot =
      convert(compare(expand(targets, 2), Direction::kEQ, iota({DType::kI32, {kV}}, 0)), DType::kF32);
  const Tensor loss = log_total - reduce_sum(scores * one_hot, {-1});
  return reduce_sum(select(compare(targets, Direction::kGE, constant(0, DType::kI32)), loss, constant(0, DType::kF32)),
                    {0, 1});
}

void expect_chunks_equal_the_whole(bool biased) {
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  GraphRun run;
  const Tensor hidden = run.input(kHidden), wanted = run.input(targets());
  TokenHead head{run.input(kHead)};
  if (biased) head.bias_V = run.input(kBias);
  std::vector<Tensor> inputs{hidden, head.weight_VD};
  std::vector<std::string> parts{"/sum", "/dhidden", "/dhead"};
  if (biased) inputs.push_back(head.bias_V), parts.push_back("/dbias");
  const Forward f{.config = config, .weights = none, .sharding = rules};
  auto give = [&](const std::string& name, const Tensor& sum) {
    run.output(name + "/sum", sum);
    // The factor 0.25 makes the cotangent of the loss different from 1.
    const std::vector<Tensor> grads = grad(sum * 0.25, inputs);
    for (size_t i = 0; i < grads.size(); ++i) run.output(name + parts[i + 1], grads[i]);
  };
  give("plain", plain_loss(hidden, head, wanted));
  // Bytes of logits per chunk: enough for 24, 6 and 1 positions of both rows.
  const std::vector<std::pair<std::string, int64_t>> budgets{{"whole", 1 << 20}, {"six", kB * 6 * kV * 4}, {"one", 1}};
  for (const auto& [name, bytes] : budgets) {
    const TokenLoss loss =
        token_loss(f, hidden, head, wanted, {.differentiable = true, .head_trained = true, .chunk_bytes = bytes});
    give(name, loss.sum);
    run.output(name + "/losses", loss.losses_BT);
    run.output(name + "/correct", loss.correct_BT);
    const TokenLoss value = token_loss(f, hidden, head, wanted, {.chunk_bytes = bytes});
    run.output(name + "/value", value.sum);
  }
  const std::map<std::string, Value> got = run.run();
  for (const auto& [name, bytes] : budgets) {
    for (const std::string& part : parts)
      for (size_t e = 0; e < got.at("plain" + part).elements.size(); ++e)
        EXPECT_NEAR(got.at(name + part).elements[e], got.at("plain" + part).elements[e], part == "/sum" ? 1e-4 : 3e-6)
            << name << part << ' ' << e;
    double sum = 0;
    for (int64_t i = 0; i < kB * kT; ++i) {
      const auto target = static_cast<int64_t>(targets().elements[i]);
      const auto [loss, best] = target < 0 ? std::pair<double, int64_t>{0, -1} : reference(i, target, biased);
      EXPECT_NEAR(got.at(name + "/losses").elements[i], loss, 5e-6) << name << " position " << i;
      EXPECT_EQ(got.at(name + "/correct").elements[i], target >= 0 && best == target) << name << " position " << i;
      sum += loss;
    }
    EXPECT_NEAR(got.at(name + "/sum").elements[0], sum, 1e-6 * sum);
    EXPECT_NEAR(got.at(name + "/value").elements[0], sum, 1e-6 * sum) << "without a gradient";
  }
}

TEST(TokenLoss, ChunksEqualTheWhole) {
  expect_chunks_equal_the_whole(false);
}

TEST(TokenLoss, ChunksEqualTheWholeWithABiasOnTheHead) {
  expect_chunks_equal_the_whole(true);
}

Value every_third_untrained(int64_t rows, int64_t positions, int64_t vocabulary) {
  Value out{{DType::kI32, {rows, positions}}, {}};
  for (int64_t i = 0; i < rows * positions; ++i)
    out.elements.push_back(i % 3 == 0 ? -100 : static_cast<double>(i * 7 % vocabulary));
  return out;
}

// Hidden states, a head and targets as inputs of a program for a mesh.
struct PlacedRows {
  static const ModelConfig& config() {
    static const ModelConfig plain;
    return plain;
  }
  static const Weights& no_weights() {
    static const Weights none;
    return none;
  }
  Tensor placed(const Value& value, const LogicalAxes& axes, const char* name) {
    return run.input(value, rules.partition(axes, value.shape.dims, name));
  }

  PlacedRows(const MeshAxes& mesh, const Value& hidden, const Value& weight, const Value& wanted)
      : run(mesh),
        rules(mesh),
        f{.config = config(), .weights = no_weights(), .sharding = rules},
        x(placed(hidden, {"batch", "length", "act_embed"}, "x")),
        head(placed(weight, {"vocab", "embed"}, "head")),
        targets(placed(wanted, {"batch", "length"}, "targets")) {}

  GraphRun run;
  ShardingRules rules;
  Forward f;
  Tensor x, head, targets;
};

// Eight devices split rows, positions and the vocabulary in several ways. Each adds up the head's gradient of its own
// tokens over the chunks, or the devices exchange the gradient after each chunk.
TEST(TokenLoss, DevicesSumTheHeadsGradientOverTheChunks) {
  const int64_t rows = 8, positions = 24, width = 16, vocabulary = 32;
  const Value hidden = random_value({DType::kF32, {rows, positions, width}}, 1, -2, 2);
  const Value weight = random_value({DType::kF32, {vocabulary, width}}, 2, -1, 1);
  const Value wanted = every_third_untrained(rows, positions, vocabulary);
  const auto result = [&](const MeshAxes& mesh, bool own_sums = true) {
    PlacedRows placed(mesh, hidden, weight, wanted);
    auto& [run, rules, f, x, head, targets] = placed;
    const TokenLoss loss = token_loss(f, x, {head}, targets,
                                      {.differentiable = true,
                                       .head_trained = true,
                                       .chunk_bytes = 6 * vocabulary * 4,  // a row's logits of 6 positions
                                       .own_sum_bytes = own_sums ? 1 << 20 : 0});
    run.output("sum", loss.sum);
    const std::vector<Tensor> grads = grad(loss.sum, {x, head});
    run.output("dhidden", grads[0]);
    run.output("dhead", grads[1]);
    if (mesh.size_of("fsdp") == 8)
      EXPECT_EQ(run.program().text().find("8x1x32x16xf32") != std::string::npos, own_sums) << "the devices' own sums";
    return run.run();
  };
  const std::map<std::string, Value> one = result({});
  for (const std::map<std::string, int64_t>& sizes :
       {std::map<std::string, int64_t>{{"fsdp", 8}}, {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}, {{"fsdp", 2}, {"sp", 4}}}) {
    for (const bool own_sums : {true, false}) {
      const std::map<std::string, Value> eight = result(make_mesh(sizes, 8), own_sums);
      for (const auto& [name, value] : one)
        for (size_t e = 0; e < value.elements.size(); ++e)
          EXPECT_NEAR(eight.at(name).elements[e], value.elements[e], 1e-5 * (name == "sum" ? 100 : 1))
              << name << ' ' << e << ' ' << mesh_title(make_mesh(sizes, 8)) << ' ' << own_sums;
    }
  }
}

// 13 and 26 positions have no divisor near 6, so chunks of 5 and 6 positions are padded.
TEST(TokenLoss, ChunksOfAnyNumberOfPositions) {
  const int64_t rows = 4, positions = 26, width = 8, vocabulary = 16;
  const Value hidden = random_value({DType::kF32, {rows, positions, width}}, 1, -2, 2);
  const Value weight = random_value({DType::kF32, {vocabulary, width}}, 2, -1, 1);
  const Value weights = random_value({DType::kF32, {rows, positions}}, 3, 0, 2);
  const Value wanted = every_third_untrained(rows, positions, vocabulary);
  const auto result = [&](const MeshAxes& mesh, int64_t bytes, const char* logits) {
    PlacedRows placed(mesh, hidden, weight, wanted);
    auto& [run, rules, f, x, head, targets] = placed;
    const Tensor factors = run.input(weights, rules.partition({"batch", "length"}, wanted.shape.dims, "weights"));
    const TokenLoss loss =
        token_loss(f, x, {head}, targets,
                   {.differentiable = true, .head_trained = true, .weights_BT = factors, .chunk_bytes = bytes});
    run.output("sum", loss.sum);
    run.output("losses", loss.losses_BT);
    run.output("correct", loss.correct_BT);
    const std::vector<Tensor> grads = grad(loss.sum, {x, head});
    run.output("dhidden", grads[0]);
    run.output("dhead", grads[1]);
    EXPECT_NE(run.program().text().find(logits), std::string::npos) << logits;
    return run.run();
  };
  const std::map<std::string, Value> whole = result({}, 1 << 20, "4x26x16xf32");
  const MeshAxes mesh = make_mesh({{"fsdp", 4}, {"sp", 2}}, 8);
  for (const auto& padded :
       {result({}, rows * 6 * vocabulary * 4, "4x6x16xf32"), result(mesh, 6 * vocabulary * 4, "4x10x16xf32")})
    for (const auto& [name, value] : whole) {
      ASSERT_EQ(padded.at(name).elements.size(), value.elements.size()) << name;
      for (size_t e = 0; e < value.elements.size(); ++e)
        EXPECT_NEAR(padded.at(name).elements[e], value.elements[e], 1e-5 * (name == "sum" ? 100 : 1)) << name << e;
    }
}

// The weights of preference pairs are small, and float16 represents no number below 6e-8. The loss scale, here the
// factor of the sum, keeps the gradient of the hidden states in its range.
TEST(TokenLoss, SmallWeightsKeepTheirGradientsInFloat16) {
  const int64_t rows = 2, positions = 4, width = 16, vocabulary = 30000;
  const double scale = 65536;
  const Value hidden = random_value({DType::kF16, {rows, positions, width}}, 1, -1, 1);
  const Value weight = random_value({DType::kF16, {vocabulary, width}}, 2, -0.1, 0.1);
  Value weights = random_value({DType::kF32, {rows, positions}}, 3, -1e-3, 1e-3);
  const Value wanted = every_third_untrained(rows, positions, vocabulary);
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  for (const bool all_zero : {false, true}) {
    if (all_zero) std::ranges::fill(weights.elements, 0);
    GraphRun run;
    const Tensor x = run.input(hidden), head = run.input(weight), targets = run.input(wanted);
    const Tensor factors = run.input(weights);
    for (const DType compute : {DType::kF16, DType::kF32}) {
      const Forward f{.config = config, .weights = none, .sharding = rules, .compute = compute};
      const std::string name(stablehlo_name(compute));
      const Tensor own_x = convert(x, compute), own_head = convert(head, DType::kF32);
      const Tensor sum = token_loss(f, own_x, {own_head}, targets,
                                    {.differentiable = true, .head_trained = true, .weights_BT = factors})
                             .sum;
      const std::vector<Tensor> grads = grad(sum * scale, {own_x, own_head});
      run.output(name + "/sum", sum);
      run.output(name + "/dhidden", convert(grads[0], DType::kF32));
      run.output(name + "/dhead", grads[1]);
    }
    const std::map<std::string, Value> got = run.run();
    for (const std::string part : {"/sum", "/dhidden", "/dhead"}) {
      double apart = 0, norm = 0;
      for (size_t e = 0; e < got.at("f32" + part).elements.size(); ++e) {
        // A target's own row of the head gets by far the largest gradient. The other rows are compared.
        const double exact = got.at("f32" + part).elements[e];
        if (part == "/dhead" && std::ranges::count(wanted.elements, static_cast<double>(e / width)) > 0) continue;
        apart += std::pow(got.at("f16" + part).elements[e] - exact, 2);
        norm += exact * exact;
      }
      if (all_zero)
        EXPECT_EQ(apart + norm, 0) << part;
      else
        EXPECT_LT(std::sqrt(apart / norm), 5e-3) << part;
    }
  }
}

// All devices that share rows count, so the budget is enough for 6 positions of each device's row.
TEST(TokenLoss, ChunksAreForTheRowsOfOneDevice) {
  const int64_t rows = 8, positions = 24, width = 16, vocabulary = 32;
  const Value hidden = random_value({DType::kF32, {rows, positions, width}}, 1, -2, 2);
  const Value weight = random_value({DType::kF32, {vocabulary, width}}, 2, -1, 1);
  const Value wanted = every_third_untrained(rows, positions, vocabulary);
  for (const std::map<std::string, int64_t>& sizes :
       {std::map<std::string, int64_t>{{"fsdp", 8}}, {{"ep", 8}}, {{"fsdp", 2}, {"ep", 4}}}) {
    PlacedRows placed(make_mesh(sizes, 8), hidden, weight, wanted);
    placed.run.output(
        "sum", token_loss(placed.f, placed.x, {placed.head}, placed.targets, {.chunk_bytes = 6 * vocabulary * 4}).sum);
    EXPECT_NE(placed.run.program().text().find("8x6x32xf32"), std::string::npos) << placed.run.program().text();
  }
}

// The text of the program shows the size of a chunk: if the budget is small, no array has the logits of all positions.
TEST(TokenLoss, LogitsOfAllPositionsNeverExistInChunks) {
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  auto text = [&](int64_t bytes) {
    GraphRun run;
    const Tensor hidden = run.input(kHidden), head = run.input(kHead), wanted = run.input(targets());
    const Forward f{.config = config, .weights = none, .sharding = rules};
    const Tensor sum =
        token_loss(f, hidden, {head}, wanted, {.differentiable = true, .head_trained = true, .chunk_bytes = bytes}).sum;
    run.output("sum", sum);
    run.output("grad", grad(sum, {hidden})[0]);
    return run.program().text();
  };
  EXPECT_NE(text(1 << 20).find("2x24x11xf32"), std::string::npos);
  EXPECT_EQ(text(kB * 6 * kV * 4).find("24x11xf32"), std::string::npos);
  EXPECT_NE(text(kB * 6 * kV * 4).find("2x6x11xf32"), std::string::npos);
}

}  // namespace
}  // namespace fettle
