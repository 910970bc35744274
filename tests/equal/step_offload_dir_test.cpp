// Tests that steps with the optimizer state in a file equal steps that keep it on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "environment.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

Recipe full_recipe(const std::string& model = "llama") {
  Recipe recipe = reference_recipe(model);
  recipe.finetuning_type = "full";
  return recipe;
}

void expect_equal_runs(const Recipe& recipe, Recipe other, double bound = 1e-6) {
  TempFolder folder;
  other.offload_dir = (folder / "state").string();
  const TrainOptions options{.steps = 4, .rate = 5e-4};
  const TrainResult wanted = train(recipe, options), got = train(other, options);
  expect_equal_lists(got.losses, wanted.losses, bound, "loss");
  expect_equal_lists(got.norms, wanted.norms, bound, "norm");
  for (const auto& [name, values] : wanted.trained) {
    const std::vector<double>& those = got.trained.at(name).elements;
    ASSERT_EQ(those.size(), values.elements.size());
    for (size_t i = 0; i < those.size(); ++i)
      ASSERT_NEAR(those[i], values.elements[i], bound * std::max(1.0, std::abs(values.elements[i]))) << name;
  }
}

void expect_equal_runs(const Recipe& recipe) {
  expect_equal_runs(recipe, recipe);
}

TEST(OffloadDir, AdamWEqualsTheDevice) {
  expect_equal_runs(full_recipe());
}

// The gradients of three micro-batches are summed in f32, then clipped by their common norm.
TEST(OffloadDir, EightBitAdamWWithMicroBatchesEqualsTheDevice) {
  Recipe recipe = full_recipe();
  recipe.optim = "adamw_8bit";
  recipe.gradient_accumulation_steps = 3;
  recipe.max_grad_norm = 0.1;
  expect_equal_runs(recipe);
}

TEST(OffloadDir, PlainReadsAndWritesEqualTheDevice) {
  const Environment forced("FETTLE_DISK_IO", "pread");
  Recipe recipe = full_recipe();
  recipe.max_grad_norm = 0;  // no clipping: the update has no factor
  expect_equal_runs(recipe);
}

TEST(OffloadDir, SixteenBitWeightsEqualTheDevice) {
  Recipe recipe = full_recipe();
  recipe.pure_bf16 = true;
  expect_equal_runs(recipe);
}

// Some weights are frozen, and the layers are in two groups.
TEST(OffloadDir, FrozenLayersEqualTheDevice) {
  Recipe recipe = reference_recipe("qwen3");
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;
  expect_equal_runs(recipe);
}

// Each device's part of the state is in the file; parts that several devices have are there once.
TEST(OffloadDir, EightDevicesEqualTheDevices) {
  Recipe recipe = full_recipe();
  recipe.mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}};
  expect_equal_runs(recipe);
}

// The weights of the layers and their gradients are in host memory.
TEST(OffloadDir, WeightsInHostMemoryEqualTheDevice) {
  Recipe recipe = full_recipe(), other = recipe;
  recipe.gradient_accumulation_steps = other.gradient_accumulation_steps = 2;
  other.offload_param = true;
  expect_equal_runs(recipe, other);
}

// Rules whose state has other shapes than the weight.
TEST(OffloadDir, OtherRulesEqualTheDevice) {
  for (const char* rule : {"adafactor", "muon"}) {
    SCOPED_TRACE(rule);
    Recipe recipe = full_recipe();
    recipe.optim = rule;
    expect_equal_runs(recipe);
  }
}

}  // namespace
}  // namespace fettle
