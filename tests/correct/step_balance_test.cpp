// The loss that balances experts is a part of the training loss, in proportion to its coefficient.
#include <gtest/gtest.h>

#include "training.h"

namespace fettle {
namespace {

double first_loss(const std::string& model, std::optional<double> share) {
  Recipe recipe = reference_recipe(model);
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 2;
  recipe.moe_aux_loss_coef = share;
  return train(recipe, {.steps = 1}).losses[0];
}

TEST(BalanceLoss, IsPartOfTheLossByItsShare) {
  const double none = first_loss("mixtral", 0), some = first_loss("mixtral", 0.05), twice = first_loss("mixtral", 0.1);
  EXPECT_GT(some, none + 0.05) << "at least 1 when all experts are used alike";
  EXPECT_NEAR(twice - some, some - none, 1e-5);
  EXPECT_EQ(first_loss("mixtral", std::nullopt), some) << "config.json has 0.05";
  EXPECT_EQ(first_loss("qwen3_moe", std::nullopt), first_loss("qwen3_moe", 0)) << "output_router_logits is false";
}

}  // namespace
}  // namespace fettle
