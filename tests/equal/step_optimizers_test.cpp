// Tests that each update rule gives the same results on eight devices as on one. State is split like its weights if the
// sizes are divisible.
#include <gtest/gtest.h>

#include "optim/optimizer.h"
#include "training.h"

namespace fettle {
namespace {

struct MeshCase {
  std::string optim;
  std::string model = "llama";
};
class OptimizerMesh : public testing::TestWithParam<MeshCase> {};

// Returns every rule with the model llama, and Adafactor and Muon also with gpt2: these two depend on rows and columns,
// and gpt2 has fused modules.
std::vector<MeshCase> mesh_cases() {
  std::vector<MeshCase> cases{{"adafactor", "gpt2"}, {"muon", "gpt2"}};
  for (const UpdateRule& rule : update_rules()) cases.push_back({std::string(rule.name)});
  return cases;
}

// Returns the bound of a rule. Signs (Lion), the codes of 8-bit and 4-bit state, and bf16 products (Muon) magnify
// rounding errors.
double bound_of(const std::string& optim) {
  if (optim == "muon") return 1e-3;
  return optim == "lion_32bit" || optim.ends_with("8bit") || optim.ends_with("4bit") ? 1e-4 : 1e-5;
}

TEST_P(OptimizerMesh, EqualsOneDevice) {
  const auto& [optim, model] = GetParam();
  const double bound = bound_of(optim);
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

INSTANTIATE_TEST_SUITE_P(Rules, OptimizerMesh, testing::ValuesIn(mesh_cases()), [](const auto& info) {
  return info.param.optim + (info.param.model == "llama" ? "" : "_" + info.param.model);
});

}  // namespace
}  // namespace fettle
