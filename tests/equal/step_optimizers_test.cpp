// Each update rule on eight devices as on one, its state split as its weights are where that divides.
#include <gtest/gtest.h>

#include "training.h"

namespace fettle {
namespace {

class OptimizerMesh : public testing::TestWithParam<std::pair<const char*, double>> {};

TEST_P(OptimizerMesh, EqualsOneDevice) {
  const auto& [optim, bound] = GetParam();
  const TrainOptions options{.steps = 5, .rate = 5e-4};
  Recipe one = reference_recipe("llama");
  one.finetuning_type = "full";
  one.optim = optim;
  Recipe eight = one;
  eight.mesh = {{"fsdp", 4}, {"tp", 2}};
  one.per_device_train_batch_size = 4;
  const TrainResult wanted = train(one, options), got = train(eight, options);
  expect_equal_lists(got.losses, wanted.losses, bound, optim);
  expect_equal_lists(got.norms, wanted.norms, 10 * bound, optim);
}

INSTANTIATE_TEST_SUITE_P(Rules, OptimizerMesh,
                         testing::Values(std::pair{"adamw_8bit", 1e-4}, std::pair{"adafactor", 1e-5},
                                         std::pair{"lion_32bit", 1e-4}, std::pair{"lion_8bit", 1e-4},
                                         std::pair{"sgd", 1e-5}, std::pair{"muon", 1e-3}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace fettle
