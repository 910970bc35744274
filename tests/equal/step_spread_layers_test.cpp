// Tests freeze-tuning of layers that are spread over the model (use_llama_pro).
#include <gtest/gtest.h>

#include "base/error.h"
#include "training.h"

namespace fettle {
namespace {

Recipe spread_recipe(const std::string& model, int64_t layers) {
  Recipe recipe = reference_recipe(model);
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = layers;
  recipe.use_llama_pro = true;
  return recipe;
}

TEST(SpreadLayers, AreTheLastOfEachBlock) {
  Recipe recipe = spread_recipe("qwen3_5_text", 4);  // 8 layers
  const TrainResult spread = train(recipe, {.steps = 2});
  ASSERT_FALSE(spread.layers.empty());
  for (const auto& [name, layers] : spread.layers)
    for (const int64_t layer : layers) EXPECT_EQ(layer % 2, 1) << name;
  recipe.use_llama_pro = false;
  recipe.freeze_trainable_layers = 8;
  const TrainResult all = train(recipe, {.steps = 2});
  EXPECT_NEAR(spread.losses[0], all.losses[0], 1e-6 * all.losses[0]);
  EXPECT_LT(spread.norms[0], all.norms[0]);
  EXPECT_NE(spread.losses[1], all.losses[1]);
}

TEST(SpreadLayers, OneIsTheLast) {
  Recipe recipe = spread_recipe("smollm3", 1);  // 3 layers
  const TrainResult spread = train(recipe);
  recipe.use_llama_pro = false;
  const TrainResult last = train(recipe);
  expect_equal_lists(spread.losses, last.losses, 1e-6, "loss");
  expect_equal_lists(spread.norms, last.norms, 1e-5, "norm");
}

TEST(SpreadLayers, MustDivideTheModel) {
  try {
    train(spread_recipe("smollm3", 2));
    FAIL() << "2 does not divide 3";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("must divide the model's 3 layers into blocks of at most 16 layers; use one of 1, 3"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace fettle
