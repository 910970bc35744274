// Tests that steps on preferences are equal with one large batch and with accumulation, on one device and on eight,
// with and without rematerialisation.
#include <gtest/gtest.h>

#include "preference_rows.h"

namespace fettle {
namespace {

Recipe recipe_of(const std::string& stage, const std::string& type = "lora") {
  Recipe recipe = reference_recipe("llama");
  recipe.stage = stage;
  recipe.finetuning_type = type;
  recipe.pref_beta = 0.5;
  recipe.per_device_train_batch_size = 8;
  return recipe;
}

TrainResult three_steps(const Recipe& recipe) {
  return train(recipe, {.rate = recipe.finetuning_type == "full" ? 5e-4 : 2e-3,
                        .rows = recipe.stage == "kto" ? rated_replies() : preference_pairs()});
}

void expect_same(const TrainResult& got, const TrainResult& wanted, double bound) {
  expect_equal_lists(got.losses, wanted.losses, bound, "loss");
  expect_equal_lists(got.norms, wanted.norms, 10 * bound, "norm");
  for (const auto& [name, values] : wanted.metrics)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(got.metrics.at(name)[i], values[i], 1e-4 * (1 + std::abs(values[i]))) << name << ' ' << i;
}

TEST(PreferenceStep, AccumulatedAsOneBatch) {
  const TrainResult big = three_steps(recipe_of("dpo"));
  Recipe small = recipe_of("dpo");
  small.per_device_train_batch_size = 2;
  small.gradient_accumulation_steps = 4;
  expect_same(three_steps(small), big, 1e-5);
}

TEST(PreferenceStep, RematerialisedOrNot) {
  Recipe saved = recipe_of("dpo");
  saved.gradient_checkpointing = "none";
  expect_same(three_steps(saved), three_steps(recipe_of("dpo")), 5e-6);
}

class PreferenceMesh : public testing::TestWithParam<std::map<std::string, int64_t>> {};

TEST_P(PreferenceMesh, AsOneDevice) {
  for (const auto& [stage, type] : {std::pair{"dpo", "lora"}, {"dpo", "full"}, {"kto", "lora"}}) {
    SCOPED_TRACE(std::string(stage) + " " + type);
    Recipe many = recipe_of(stage, type);
    many.mesh = GetParam();
    for (const char* axis : {"dp", "fsdp"})
      if (many.mesh.contains(axis)) many.per_device_train_batch_size /= many.mesh[axis];
    expect_same(three_steps(many), three_steps(recipe_of(stage, type)), 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Eight, PreferenceMesh,
                         testing::Values(std::map<std::string, int64_t>{{"fsdp", 8}},
                                         std::map<std::string, int64_t>{{"fsdp", 2}, {"sp", 2}, {"tp", 2}}));

}  // namespace
}  // namespace fettle
