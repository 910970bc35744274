// Each update rule on eight devices equals one device. Its state is split like its weights where the sizes divide.
#include <gtest/gtest.h>

#include "training.h"

namespace fettle {
namespace {

struct MeshCase {
  const char* optim;
  double bound;
  const char* model = "llama";
};
class OptimizerMesh : public testing::TestWithParam<MeshCase> {};

TEST_P(OptimizerMesh, EqualsOneDevice) {
  const auto& [optim, bound, model] = GetParam();
  const TrainOptions options{.steps = 5, .rate = 5e-4};
  Recipe one = reference_recipe(model);
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
                         testing::Values(MeshCase{"adamw_8bit", 1e-4}, MeshCase{"adafactor", 1e-5},
                                         MeshCase{"adafactor", 1e-5, "gpt2"}, MeshCase{"lion_32bit", 1e-4},
                                         MeshCase{"lion_8bit", 1e-4}, MeshCase{"sgd", 1e-5}, MeshCase{"muon", 1e-3},
                                         MeshCase{"muon", 1e-3, "gpt2"}),
                         [](const auto& info) {
                           return std::string(info.param.optim) +
                                  (std::string(info.param.model) == "llama" ? "" : "_gpt2");
                         });

}  // namespace
}  // namespace fettle
