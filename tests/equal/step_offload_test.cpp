// Tests that steps with weights, gradients and optimizer state in host memory equal steps that keep them on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "training.h"

namespace fettle {
namespace {

Recipe offloaded(Recipe recipe) {
  recipe.offload_optimizer = recipe.offload_param = true;
  return recipe;
}

void expect_equal_runs(const Recipe& recipe, const Recipe& other, double bound, double weight_bound = 0) {
  if (weight_bound == 0) weight_bound = bound;
  const TrainOptions options{.steps = 3, .rate = recipe.finetuning_type == "lora" ? 5e-3 : 5e-4};
  const TrainResult wanted = train(recipe, options), got = train(other, options);
  expect_equal_lists(got.losses, wanted.losses, bound, "loss");
  expect_equal_lists(got.norms, wanted.norms, bound, "norm");
  for (const auto& [name, values] : wanted.trained) {
    const std::vector<double>& those = got.trained.at(name).elements;
    ASSERT_EQ(those.size(), values.elements.size());
    for (size_t i = 0; i < those.size(); ++i)
      ASSERT_NEAR(those[i], values.elements[i], weight_bound * std::max(1.0, std::abs(values.elements[i]))) << name;
  }
}

TEST(Offload, LoraEqualsTheDevices) {
  const Recipe recipe = reference_recipe("llama");
  expect_equal_runs(recipe, offloaded(recipe), 1e-6);
}

// Checks that the dropout masks are the same: other masks would change the losses by one percent. Weights are not
// compared, because dropout makes some gradients small, and Adam's first steps turn the rounding noise of small
// gradients into whole steps.
TEST(Offload, DropoutHasTheSameMasks) {
  Recipe recipe = reference_recipe("llama");
  recipe.lora_dropout = 0.1;
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  const TrainResult wanted = train(recipe, options), got = train(offloaded(recipe), options);
  expect_equal_lists(got.losses, wanted.losses, 1e-6, "loss");
  expect_equal_lists(got.norms, wanted.norms, 1e-6, "norm");
}

TEST(Offload, FullTuningWithMicroBatchesEqualsTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.gradient_accumulation_steps = 3;
  expect_equal_runs(recipe, offloaded(recipe), 1e-6);
}

// The layers are in two groups, and only one group is trained. Only the optimizer state is offloaded.
TEST(Offload, StateAloneEqualsTheDevices) {
  Recipe recipe = reference_recipe("qwen3");
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;
  Recipe other = recipe;
  other.offload_optimizer = true;
  expect_equal_runs(recipe, other, 1e-6);
}

// With 16-bit weights, the master weights are offloaded with the optimizer state. The step computes with 16-bit copies.
TEST(Offload, MastersEqualTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.bf16 = true;
  Recipe other = recipe;
  other.offload_optimizer = true;
  expect_equal_runs(recipe, other, 1e-6);
}

TEST(Offload, EightBitStateOnEightDevicesEqualsTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.optim = "adamw_8bit";
  recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
  expect_equal_runs(recipe, offloaded(recipe), 1e-5);
}

TEST(Offload, QuantisedLayersEqualTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.quantization_bit = 4;
  // A few gradients are small. Adam's first steps have size 5e-3, so they magnify the rounding noise of these
  // gradients.
  expect_equal_runs(recipe, offloaded(recipe), 1e-6, 1e-4);
}

}  // namespace
}  // namespace fettle
