// Twenty steps of full tuning with each update rule beside its reference implementation (tests/reference).
#include <gtest/gtest.h>

#include "optim/schedule.h"
#include "training.h"

namespace fettle {
namespace {

class OptimizerParity : public testing::TestWithParam<std::pair<const char*, double>> {};

TEST_P(OptimizerParity, TwentyFullSteps) {
  const auto& [name, bound] = GetParam();
  const auto recorded = nlohmann::json::parse(
      std::ifstream(std::string(FETTLE_SOURCE_DIR) + "/tests/reference/optimizers.json"))["rules"][name];
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  recipe.optim = recorded["recipe"]["optim"];
  if (recorded["recipe"].contains("optim_args")) recipe.optim_args = recorded["recipe"]["optim_args"];
  const Schedule schedule{"cosine", 5, 20};
  const double rate = recorded["full"]["learning_rate"];
  const TrainResult result =
      train(recipe, {.steps = 20, .rate_at = [&](int64_t step) { return rate * schedule.multiplier(step); }});
  expect_equal_lists(result.losses, recorded["full"]["loss"], bound, "loss");
  expect_equal_lists(result.norms, recorded["full"]["grad_norm"], 10 * bound, "norm");
  double largest = 0;
  for (size_t i = 0; i < result.losses.size(); ++i)
    largest = std::max(largest, std::abs(result.losses[i] / recorded["full"]["loss"][i].get<double>() - 1));
  RecordProperty("largest", std::to_string(largest));
  std::printf("%s: largest relative difference of a loss %.2g\n", name, largest);
}

INSTANTIATE_TEST_SUITE_P(Rules, OptimizerParity,
                         testing::Values(std::pair{"adamw_torch", 1e-4}, std::pair{"adamw_8bit", 1e-3},
                                         std::pair{"lion_32bit", 1e-4}, std::pair{"lion_8bit", 1e-3},
                                         std::pair{"sgd", 1e-4}, std::pair{"sgd_momentum", 1e-4},
                                         std::pair{"sgd_nesterov", 1e-4}, std::pair{"adafactor", 1e-4},
                                         std::pair{"adafactor_scaled", 1e-4}, std::pair{"muon", 5e-3},
                                         std::pair{"muon_original", 5e-3}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace fettle
