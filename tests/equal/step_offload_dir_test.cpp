// Tests that steps with the optimizer state in a file equal steps that keep it in memory, to the last bit. The same for
// float32 weights in that file.
//
// With offload_dir, a step is several programs instead of one. XLA's passes algsimp and fusion simplify and fuse the
// two forms in different ways. For example, bf16 gradients are rounded at other places. So ctest disables these two
// passes for these tests (XLA_FLAGS in tests/CMakeLists.txt). Then both forms compute the same, and the results must be
// equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/environment.h"
#include "environment.h"
#include "preference_rows.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

class OffloadDirStep : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (environment("XLA_FLAGS").find("algsimp") == std::string::npos)
      GTEST_SKIP() << "XLA_FLAGS does not disable algsimp and fusion; run this test with ctest";
  }
  static void expect_equal_with_weights(const Recipe& recipe) { expect_equal_runs(recipe, true); }
  static Recipe full_recipe() {
    Recipe recipe = reference_recipe("llama");
    recipe.finetuning_type = "full";
    return recipe;
  }
  static Recipe bf16_recipe(const std::string& model = "llama") {
    Recipe recipe = reference_recipe(model);
    recipe.finetuning_type = "full";
    recipe.bf16 = true;
    return recipe;
  }
  // Trains with `recipe`, and with the same recipe and offload_dir.
  static void expect_equal_runs(const Recipe& recipe, bool weights = false) {
    const TempFolder folder(program_file().parent_path());
    Recipe other = recipe;
    other.offload_dir = folder.path().string();
    other.offload_dir_weights = weights;
    TrainOptions options{.steps = 4, .rate = 5e-4};
    if (recipe.stage == "dpo") options.rows = preference_pairs();
    const TrainResult wanted = train(recipe, options), got = train(other, options);
    EXPECT_EQ(got.losses, wanted.losses);
    EXPECT_EQ(got.norms, wanted.norms);
    EXPECT_NE(wanted.losses[0], wanted.losses[3]);
    for (const auto& [name, values] : wanted.trained)
      EXPECT_TRUE(got.trained.at(name).elements == values.elements) << name;
  }
};

TEST_F(OffloadDirStep, AdamWEqualsTheDevice) {
  expect_equal_runs(full_recipe());
}

// The gradients of three micro-batches are summed in f32, then clipped by their common norm.
TEST_F(OffloadDirStep, EightBitAdamWWithMicroBatchesEqualsTheDevice) {
  Recipe recipe = full_recipe();
  recipe.optim = "adamw_8bit";
  recipe.gradient_accumulation_steps = 3;
  recipe.max_grad_norm = 0.1;
  expect_equal_runs(recipe);
}

TEST_F(OffloadDirStep, PlainReadsAndWritesEqualTheDevice) {
  const Environment forced("FETTLE_DISK_IO", "pread");
  Recipe recipe = full_recipe();
  recipe.max_grad_norm = 0;  // no clipping: the update has no factor
  expect_equal_runs(recipe);
}

TEST_F(OffloadDirStep, SixteenBitWeightsEqualTheDevice) {
  Recipe recipe = full_recipe();
  recipe.pure_bf16 = true;
  expect_equal_runs(recipe);
}

// Some weights are frozen, and the layers are in two groups.
TEST_F(OffloadDirStep, FrozenLayersEqualTheDevice) {
  Recipe recipe = reference_recipe("qwen3");
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;
  expect_equal_runs(recipe);
}

// Each device's part of the state is in the file; parts that several devices have are there once.
TEST_F(OffloadDirStep, EightDevicesEqualTheDevices) {
  Recipe recipe = full_recipe();
  recipe.mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}};
  expect_equal_runs(recipe);
}

// The weights of the layers and their gradients are in host memory in both runs.
TEST_F(OffloadDirStep, WeightsInHostMemoryEqualTheHost) {
  Recipe recipe = full_recipe();
  recipe.gradient_accumulation_steps = 2;
  recipe.offload_param = true;
  expect_equal_runs(recipe);
}

// In the following tests, the file also has the float32 weights of the layers' matrices. The run without offload_dir
// converts them to 16 bits in each layer.
TEST_F(OffloadDirStep, Float32WeightsWithMicroBatchesEqualTheDevice) {
  Recipe recipe = bf16_recipe();
  recipe.optim = "adamw_8bit";
  recipe.gradient_accumulation_steps = 3;
  recipe.max_grad_norm = 0.1;
  expect_equal_with_weights(recipe);
}

TEST_F(OffloadDirStep, Float32WeightsInFloat16EqualTheDevice) {
  Recipe recipe = bf16_recipe();
  recipe.bf16 = false;
  recipe.fp16 = true;
  expect_equal_with_weights(recipe);
}

TEST_F(OffloadDirStep, Float32WeightsOfSomeLayersEqualTheDevice) {
  Recipe recipe = bf16_recipe("qwen3");
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;
  expect_equal_with_weights(recipe);
}

TEST_F(OffloadDirStep, Float32WeightsOfEightDevicesEqualTheDevices) {
  Recipe recipe = bf16_recipe();
  recipe.mesh = {{"dp", 2}, {"fsdp", 2}, {"tp", 2}};
  expect_equal_with_weights(recipe);
}

// The 16-bit copies and their gradients are in host memory. The first weights are random.
TEST_F(OffloadDirStep, Float32WeightsWithCopiesInHostMemoryEqualTheHost) {
  Recipe recipe = bf16_recipe();
  recipe.train_from_scratch = true;
  recipe.gradient_accumulation_steps = 2;
  recipe.offload_param = true;
  expect_equal_with_weights(recipe);
}

TEST_F(OffloadDirStep, Float32WeightsOfExpertsEqualTheDevice) {
  expect_equal_with_weights(bf16_recipe("mixtral"));
}

// The reference model keeps the weights with which the run starts.
TEST_F(OffloadDirStep, Float32WeightsBesideAReferenceModelEqualTheDevice) {
  Recipe recipe = bf16_recipe();
  recipe.stage = "dpo";
  expect_equal_with_weights(recipe);
}

// These rules multiply matrices or sum over a weight. Without offload, they do so for all layers in one operation,
// which adds in another order. With offload_optimizer, each layer is updated on its own, as with offload_dir.
INSTANTIATE_TEST_SUITE_P(Rules, OffloadDirStep, testing::Values("adafactor", "muon", "apollo_adamw"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(OffloadDirStep, RuleEqualsTheHost) {
  Recipe recipe = full_recipe();
  recipe.optim = GetParam();
  recipe.offload_optimizer = true;
  expect_equal_runs(recipe);
}

}  // namespace
}  // namespace fettle
