// Tests that the load-balancing loss of experts is part of the training loss, multiplied by its coefficient.
#include <gtest/gtest.h>

#include "preference_rows.h"
#include "resolve_run.h"
#include "temp_folder.h"
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
  EXPECT_GT(some, none + 0.05) << "the balancing loss is at least 1";
  EXPECT_NEAR(twice - some, some - none, 1e-5);
  EXPECT_EQ(first_loss("mixtral", std::nullopt), some) << "config.json has 0.05";
  EXPECT_EQ(first_loss("qwen3_moe", std::nullopt), first_loss("qwen3_moe", 0)) << "output_router_logits is false";
}

// KTO takes the loss from the rows' own replies, not from the other rows' replies with which it estimates the
// divergence.
TEST(BalanceLoss, OfKtoIsThatOfItsRows) {
  const auto balance = [](const char* stage) {
    const auto loss = [&](double share) {
      Recipe recipe = reference_recipe("mixtral");
      recipe.stage = stage;
      recipe.finetuning_type = "full";
      recipe.per_device_train_batch_size = 4;
      recipe.moe_aux_loss_coef = share;
      return train(recipe, {.steps = 1, .rows = rated_replies()}).losses[0];
    };
    return loss(1) - loss(0);
  };
  EXPECT_NEAR(balance("kto"), balance("sft"), 1e-5);
}

// The training loss includes the balancing loss, but the loss of a row in an evaluation does not. Checks that both
// steps can be built and compiled.
TEST(BalanceLoss, IsNotPartOfAnEvaluation) {
  for (const char* stage : {"sft", "cls", "rm"}) {
    Recipe recipe = reference_recipe("mixtral");
    recipe.stage = stage;
    recipe.finetuning_type = "full";
    recipe.moe_aux_loss_coef = 0.05;
    if (recipe.stage == "cls") recipe.num_labels = 3, recipe.problem_type = "single_label_classification";
    Devices& devices = cpu_devices(1);
    const std::string config = recipe.model_name_or_path + "/config.json";
    const auto run = make_run(recipe, nlohmann::json::parse(read_text(config)), config, 1);
    EXPECT_NO_THROW(devices.compile(build_eval_step(run, padded_shape(run.batch, 16)))) << stage;
    EXPECT_NO_THROW(devices.compile(build_train_step(run, 16))) << stage;
  }
}

}  // namespace
}  // namespace fettle
