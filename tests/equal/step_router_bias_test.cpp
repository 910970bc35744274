// Tests that the corrections of routers move in the same way for any mesh, micro-batches, packing and offloading.
#include <gtest/gtest.h>

#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

Recipe recipe_of(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"model_name_or_path=" + reference_model(model).string(), "plugin=cpu",
                                 "finetuning_type=full", "moe_router_bias_update_rate=0.01"};
  words.insert(words.end(), more.begin(), more.end());
  return read_recipe("", words);
}

void expect_same(const TrainResult& got, const TrainResult& wanted, const char* what) {
  ASSERT_FALSE(wanted.corrections.empty());
  ASSERT_EQ(got.corrections.size(), wanted.corrections.size()) << what;
  for (const auto& [name, value] : wanted.corrections)
    EXPECT_EQ(got.corrections.at(name).elements, value.elements) << what << ' ' << name;
  expect_equal_lists(got.losses, wanted.losses, 1e-5, what);
}

TEST(RouterBias, MovesInTheSameWayOnAnyMeshAndInMicroBatches) {
  const TrainOptions options{.steps = 3, .rate = 5e-4};
  const TrainResult one = train(recipe_of("deepseek_v3", {"per_device_train_batch_size=8"}), options);
  expect_same(
      train(recipe_of("deepseek_v3", {"mesh={fsdp: 2, ep: 2, tp: 2}", "per_device_train_batch_size=4"}), options), one,
      "eight devices");
  expect_same(train(recipe_of("deepseek_v3", {"mesh={dp: 2, sp: 2, ep: 2}", "per_device_train_batch_size=1",
                                              "gradient_accumulation_steps=4"}),
                    options),
              one, "eight devices, micro-batches");
  expect_same(
      train(recipe_of("deepseek_v3", {"per_device_train_batch_size=8", "gradient_checkpointing=full"}), options), one,
      "full recomputation");
}

TEST(RouterBias, MovesInTheSameWayWithStateOnADisk) {
  TempFolder folder;
  const TrainOptions options{.steps = 2, .rate = 5e-4};
  expect_same(train(recipe_of("minimax_m2", {"offload_dir=" + (folder / "disk").string()}), options),
              train(recipe_of("minimax_m2"), options), "offload_dir");
}

}  // namespace
}  // namespace fettle
