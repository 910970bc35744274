// Steps whose weights, gradients and optimizer state lie in host memory equal steps that keep them on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "training.h"

namespace fettle {
namespace {

Recipe offloaded(Recipe recipe) {
  recipe.offload_optimizer = recipe.offload_param = true;
  return recipe;
}

// The absolute values of Adam's first moments; empty with other rules.
std::vector<double> sums_of_gradients(const TrainResult& result, const std::string& name) {
  const auto found = result.moments.find(name);
  if (found == result.moments.end()) return {};
  std::vector<double> out = found->second.elements;
  for (double& value : out) value = std::abs(value);
  return out;
}

void expect_equal_runs(const Recipe& recipe, const Recipe& other, double bound) {
  const TrainOptions options{.steps = 3, .rate = recipe.finetuning_type == "lora" ? 5e-3 : 5e-4};
  const TrainResult wanted = train(recipe, options), got = train(other, options);
  expect_equal_lists(got.losses, wanted.losses, bound, "loss");
  expect_equal_lists(got.norms, wanted.norms, bound, "norm");
  for (const auto& [name, values] : wanted.trained) {
    const std::vector<double>& those = got.trained.at(name).elements;
    ASSERT_EQ(those.size(), values.elements.size());
    const std::vector<double> gradients = sums_of_gradients(wanted, name);
    const double largest = gradients.empty() ? 0 : *std::ranges::max_element(gradients);
    for (size_t i = 0; i < those.size(); ++i) {
      // Adam's step is as long for a gradient of rounding noise as for any other, and then its direction is noise.
      const double noise = gradients.empty() ? 0 : std::min(1.0, 1e-7 * largest / std::max(gradients[i], 1e-30));
      const double rounding = noise * options.rate * static_cast<double>(options.steps);
      ASSERT_NEAR(those[i], values.elements[i], bound * std::max(1.0, std::abs(values.elements[i])) + rounding)
          << name << ' ' << (gradients.empty() ? 0 : gradients[i] / largest);
    }
  }
}

TEST(Offload, LoraEqualsTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.lora_dropout = 0.1;
  expect_equal_runs(recipe, offloaded(recipe), 1e-6);
}

TEST(Offload, FullTuningWithMicroBatchesEqualsTheDevices) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.gradient_accumulation_steps = 3;
  expect_equal_runs(recipe, offloaded(recipe), 1e-6);
}

// Two segments of layers, one of them trained; only the optimizer state is offloaded.
TEST(Offload, StateAloneEqualsTheDevices) {
  Recipe recipe = reference_recipe("qwen3");
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;
  Recipe other = recipe;
  other.offload_optimizer = true;
  expect_equal_runs(recipe, other, 1e-6);
}

// In 16 bits, the master weights are offloaded with the state, and the step computes with copies of them.
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
  expect_equal_runs(recipe, offloaded(recipe), 1e-6);
}

}  // namespace
}  // namespace fettle
