// Tests which modules have LoRA weights, the values of these weights, and what they add.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "adapters/lora.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "reference_models.h"

namespace fettle {
namespace {

using Names = std::vector<std::string>;

Model reference(const std::string& name) {
  return make_model(nlohmann::json::parse(std::ifstream(reference_model(name) / "config.json")), "config.json");
}

TEST(Lora, TargetsAreMatchedAsPeftDoes) {
  const Model llama = reference("llama"), gpt2 = reference("gpt2");
  EXPECT_EQ(lora_modules(llama, {"all"}), llama.linears());
  EXPECT_EQ(lora_modules(llama, {"all-linear"}), llama.linears());
  EXPECT_EQ(lora_modules(llama, {"v_proj", "q_proj"}), (Names{"self_attn.q_proj", "self_attn.v_proj"}))
      << "in the model's order";
  EXPECT_EQ(lora_modules(llama, {"self_attn.q_proj"}), Names{"self_attn.q_proj"});
  EXPECT_EQ(lora_modules(gpt2, {"c_proj"}), (Names{"attn.c_proj", "mlp.c_proj"})) << "both names end so after a dot";
}

TEST(Lora, AWarningNamesATargetThatMatchesNothingBesideOthers) {
  Names warnings;
  EXPECT_EQ(lora_modules(reference("llama"), {"q_proj", "w1"}, &warnings), Names{"self_attn.q_proj"});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("lora_target: 'w1' matches no linear layer of llama and is ignored"))
      << warnings[0];
}

// PEFT matches a single string with re.fullmatch against the names of modules in Transformers 5. Axolotl's recipes that
// train only the text model of a checkpoint with images have such expressions.
TEST(Lora, AnExpressionMatchesWholeNames) {
  const std::string axolotl =
      R"(model.language_model.layers.[\d]+.(_checkpoint_wrapped_module.)?(mlp|self_attn).(up|down|gate|q|k|v|o)_proj)";
  for (const char* wrapped : {"gemma4", "mistral3"}) {
    const Model model = reference(wrapped);
    Names wanted;
    for (const std::string& name : model.linears())
      if ((name.starts_with("mlp.") || name.starts_with("self_attn.")) && name.ends_with("_proj"))
        wanted.push_back(name);
    EXPECT_GE(wanted.size(), 7u) << wrapped;
    EXPECT_EQ(lora_modules(model, {axolotl}), wanted) << wrapped;
  }
  const Model llama = reference("llama");
  EXPECT_EQ(lora_modules(llama, {R"(.*\.self_attn\.[qv]_proj)"}), (Names{"self_attn.q_proj", "self_attn.v_proj"}));
  EXPECT_EQ(lora_modules(llama, {".*(k|o)_proj"}), (Names{"self_attn.k_proj", "self_attn.o_proj"}));
}

TEST(Lora, LoraWeightsHaveTheShapesAndAxesOfTheirBase) {
  const Model llama = reference("llama"), gpt2 = reference("gpt2");
  const std::vector<Param> pair = lora_params(llama, {.rank = 4, .modules = {"mlp.down_proj"}});
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(pair[0].hf_name, "model.layers.{}.mlp.down_proj.lora_A.weight");
  EXPECT_EQ(pair[0].dims, (Dims{4, 96}));
  EXPECT_EQ(pair[0].axes, (LogicalAxes{"rank", "mlp"}));
  EXPECT_EQ(pair[1].hf_name, "model.layers.{}.mlp.down_proj.lora_B.weight");
  EXPECT_EQ(pair[1].dims, (Dims{64, 4}));
  EXPECT_EQ(pair[1].axes, (LogicalAxes{"embed", "rank"}));
  EXPECT_EQ(pair[1].init, Init::kZeros);
  const std::vector<Param> conv1d = lora_params(gpt2, {.rank = 4, .modules = {"mlp.c_fc"}});
  EXPECT_EQ(conv1d[0].dims, (Dims{4, 64})) << "its base is [in, out]";
  EXPECT_EQ(conv1d[1].dims, (Dims{96, 4}));
}

TEST(Lora, Scales) {
  EXPECT_EQ((LoraOptions{.rank = 16, .alpha = 8}).scale(), 0.5);
  EXPECT_EQ((LoraOptions{.rank = 16, .alpha = 8, .rslora = true}).scale(), 2);
}

TEST(Lora, AddsTheScaledProduct) {
  const Value x = random_value({DType::kF32, {2, 3, 5}}, 1), a = random_value({DType::kF32, {2, 5}}, 2);
  const Value b = random_value({DType::kF32, {4, 2}}, 3), y = random_value({DType::kF32, {2, 3, 4}}, 4);
  GraphRun run;
  const Layer layer{
      constant(0, DType::kI32), 0, {{"m.lora_A.weight", run.input(a)}, {"m.lora_B.weight", run.input(b)}}};
  run.output("y", lora_adapt({.rank = 2, .alpha = 6}, DType::kF32, nullptr)(layer, "m", run.input(x), run.input(y)));
  const Value got = run.run().at("y");
  for (int64_t row = 0; row < 6; ++row)
    for (int64_t o = 0; o < 4; ++o) {
      double wanted = y.elements[row * 4 + o];
      for (int64_t r = 0; r < 2; ++r) {
        double inner = 0;
        for (int64_t i = 0; i < 5; ++i) inner += a.elements[r * 5 + i] * x.elements[row * 5 + i];
        wanted += 3 * b.elements[o * 2 + r] * inner;
      }
      EXPECT_NEAR(got.elements[row * 4 + o], wanted, 1e-5);
    }
}

// DoRA divides by the norm of each output's weights. An output whose weights are zero must stay zero and have no
// gradient.
TEST(Lora, AnOutputOfZerosHasFiniteGradients) {
  Value w = random_value({DType::kF32, {4, 5}}, 1), b = random_value({DType::kF32, {4, 2}}, 2);
  const Value x = random_value({DType::kF32, {3, 5}}, 3), a = random_value({DType::kF32, {2, 5}}, 4);
  std::fill_n(w.elements.begin(), 5, 0);
  std::fill_n(b.elements.begin(), 2, 0);
  GraphRun run;
  const std::vector<Tensor> trained{run.input(a), run.input(b), run.input(f32({4}, {0, 1, 1, 1}))};
  const Tensor weight = run.input(w), input = run.input(x);
  const Layer layer{constant(0, DType::kI32),
                    0,
                    {{"m.weight", weight},
                     {"m.lora_A.weight", trained[0]},
                     {"m.lora_B.weight", trained[1]},
                     {"m.lora_magnitude_vector", trained[2]}}};
  const Tensor y = dot_general(input, weight, {.lhs_contracting = {1}, .rhs_contracting = {1}});
  const Tensor out = lora_adapt({.rank = 2, .alpha = 6, .dora = true}, DType::kF32, nullptr)(layer, "m", input, y);
  const std::vector<Tensor> gradients = grad(reduce_sum(out * out, {0, 1}), trained);
  run.output("out", out);
  for (size_t i = 0; i < gradients.size(); ++i) run.output("gradient" + std::to_string(i), gradients[i]);
  const std::map<std::string, Value> got = run.run();
  for (const auto& [name, value] : got)
    for (double element : value.elements) ASSERT_TRUE(std::isfinite(element)) << name;
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(got.at("out").elements[row * 4], 0);
    EXPECT_NE(got.at("out").elements[row * 4 + 1], 0);
  }
  EXPECT_EQ(got.at("gradient2").elements[0], 0);
  EXPECT_NE(got.at("gradient2").elements[1], 0);
}

}  // namespace
}  // namespace fettle
