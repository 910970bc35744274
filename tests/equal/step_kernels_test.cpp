// Tests that training with kernels equals training with the composites' bodies: losses, norms and gradients of models
// with windows, caps, slopes and grouped heads, on packed rows. Also tests that rematerialisation, packing and eight
// devices do not change the results of training with kernels.
#include <gtest/gtest.h>

#include <cmath>

#include "training.h"

namespace fettle {
namespace {

// Adam turns the rounding noise of a zero gradient into whole steps, so the test compares gradients instead of weights.
void expect_near_results(const TrainResult& got, const TrainResult& wanted, double loss, double gradient) {
  expect_equal_lists(got.losses, wanted.losses, loss, "loss");
  expect_equal_lists(got.norms, wanted.norms, 10 * loss, "norm");
  for (const auto& [name, value] : wanted.moments) {
    double scale = 0;
    for (double x : value.elements) scale = std::max(scale, std::abs(x));
    EXPECT_GT(scale, 0) << name;
    for (size_t e = 0; e < value.elements.size(); ++e)
      ASSERT_NEAR(got.moments.at(name).elements[e], value.elements[e], gradient * scale) << name << ' ' << e;
  }
}

Recipe recipe_of(const std::string& model, const std::string& type) {
  Recipe recipe = reference_recipe(model);
  recipe.finetuning_type = type;
  recipe.per_device_train_batch_size = 2;
  return recipe;
}

class TrainingWithKernels : public testing::TestWithParam<const char*> {};

TEST_P(TrainingWithKernels, EqualsTheBodies) {
  const Recipe recipe = recipe_of(GetParam(), "full");
  const TrainResult bodies = train(recipe, {.packing = true});
  expect_near_results(train(recipe, {.packing = true, .kernels = true}), bodies, 1e-6, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, TrainingWithKernels,
                         testing::Values("llama", "mistral", "gemma2", "gemma3", "gpt2", "baichuan13b", "mixtral"),
                         [](const auto& info) { return std::string(info.param); });

// Returns the norm of the difference between the first moments and `wanted`'s, divided by the norm of `wanted`'s.
double distance(const TrainResult& got, const TrainResult& wanted) {
  double error = 0, length = 0;
  for (const auto& [name, value] : wanted.moments)
    for (size_t e = 0; e < value.elements.size(); ++e) {
      const double difference = got.moments.at(name).elements[e] - value.elements[e];
      error += difference * difference;
      length += value.elements[e] * value.elements[e];
    }
  return std::sqrt(error / length);
}

// The body and the kernel round different values to bf16. Compared with the f32 gradients, the kernel's gradients are
// as exact as the body's.
TEST(TrainingWithKernelsInBf16, IsAsExactAsTheBodies) {
  Recipe recipe = recipe_of("llama", "lora");
  const TrainResult exact = train(recipe, {.steps = 1});
  recipe.bf16 = true;
  const TrainResult body = train(recipe, {.steps = 1}), kernel = train(recipe, {.steps = 1, .kernels = true});
  EXPECT_GT(distance(body, exact), 1e-4) << "bf16 has no effect";
  EXPECT_LT(distance(kernel, exact), 1.2 * distance(body, exact));
  EXPECT_LT(distance(kernel, body), 1.5 * distance(body, exact));
  expect_equal_lists(train(recipe, {.kernels = true}).losses, train(recipe).losses, 3e-3, "loss");
}

TEST(TrainingWithKernelsAlike, RematPoliciesAgree) {
  Recipe recipe = recipe_of("llama", "lora");
  recipe.gradient_checkpointing = "none";
  const TrainResult none = train(recipe, {.kernels = true});
  for (const char* policy : {"dots", "50%", "full"}) {
    recipe.gradient_checkpointing = policy;
    expect_near_results(train(recipe, {.kernels = true}), none, 1e-6, 1e-4);
  }
}

TEST(TrainingWithKernelsAlike, PackedEqualsApart) {
  Recipe recipe = recipe_of("llama", "full");
  // 8 rows: once packed (two of them share a line), once each in its own line.
  const std::vector<Example> rows = reference_rows(0, 8);
  TrainOptions packed{.steps = 1, .packing = true, .kernels = true, .rows = rows},
      apart{.steps = 1, .kernels = true, .rows = rows};
  recipe.per_device_train_batch_size = 8;
  expect_near_results(train(recipe, packed), train(recipe, apart), 1e-6, 1e-4);
}

TEST(TrainingWithKernelsAlike, EightDevicesEqualOne) {
  for (const char* type : {"full", "lora"}) {
    SCOPED_TRACE(type);
    Recipe recipe = recipe_of("llama", type);
    recipe.per_device_train_batch_size = 8;
    const TrainResult one = train(recipe, {.kernels = true});
    recipe.per_device_train_batch_size = 1;
    recipe.mesh = {{"fsdp", 8}};
    expect_near_results(train(recipe, {.kernels = true}), one, 1e-6, 1e-4);
    recipe.per_device_train_batch_size = 2;
    recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
    expect_near_results(train(recipe, {.kernels = true}), one, 1e-6, 1e-4);
  }
}

// In a stage, no rows are split over `pp`. So its layers do not use cpu_lora and cpu_rms_norm, which need different
// rows on every device. The rows of the head and the loss are split over `pp`: cpu_linear and cpu_cross_entropy compute
// them.
TEST(TrainingWithKernelsAlike, StagesOfAPipelineEqualOneDevice) {
  Recipe recipe = recipe_of("llama", "lora");
  recipe.gradient_accumulation_steps = 2;
  const TrainResult bodies = train(recipe);
  recipe.per_device_train_batch_size = 1;
  recipe.mesh = {{"pp", 2}, {"fsdp", 2}};
  expect_near_results(train(recipe, {.kernels = true}), bodies, 1e-6, 1e-4);

  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", training_target(cpu_devices(4), true));
  std::set<std::string> used;
  for (const KernelUse& use : build_train_step(run, 40).kernels())
    used.insert(use.kernel.substr(0, use.kernel.find('/')));
  EXPECT_EQ(used,
            (std::set<std::string>{"cpu_adamw", "cpu_attention", "cpu_cross_entropy", "cpu_gated", "cpu_linear"}));
}

// With a base in 4 bits, the kernel reads the dequantised weights.
TEST(TrainingWithKernelsAlike, LoraEqualsTheBodies) {
  Recipe recipe = recipe_of("llama", "lora");
  const TrainResult bodies = train(recipe, {.packing = true});
  expect_near_results(train(recipe, {.packing = true, .kernels = true}), bodies, 1e-6, 1e-4);
  recipe.quantization_bit = 4;
  const TrainResult quantised = train(recipe, {.packing = true});
  expect_near_results(train(recipe, {.packing = true, .kernels = true}), quantised, 1e-6, 1e-4);
}

}  // namespace
}  // namespace fettle
