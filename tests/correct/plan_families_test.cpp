// Compiles a step of every family for hardware that is not present, on a mesh of eight devices with fsdp (or dp), ep
// and tp.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/recipe.h"
#include "data/classes/taught_labels.h"
#include "families.h"
#include "gpu_plugin.h"
#include "paths.h"
#include "plan/step_plan.h"

namespace fettle {
namespace {

class PlanOfFamily : public testing::TestWithParam<std::string> {
 protected:
  // Returns whether AMD's compiler is used. Families in odd positions use NVIDIA's, so the order of the lists matters:
  // of the six tests that `make test` runs (kept_tests in tests/CMakeLists.txt), each compiler has three.
  bool on_amd() const {
    const auto& list = std::ranges::find(kEncoders, GetParam()) == kEncoders.end() ? kFamilies : kEncoders;
    return (std::ranges::find(list, GetParam()) - list.begin()) % 2 == 0;
  }
  void SetUp() override { require_gpu_plugin(on_amd() ? "rocm" : "cuda"); }
};

TEST_P(PlanOfFamily, Compiles) {
  const std::filesystem::path folder = source_folder() / "tests/reference/models" / GetParam();
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  const int64_t labels = read_taught_labels(config, "config.json").count();
  Recipe recipe;
  if (labels > 0) {
    recipe.stage = "cls";
    recipe.problem_type = "single_label_classification";
    recipe.num_labels = labels;
  }
  const ModelConfig model = make_model(config, "config.json", labels).config;
  const bool experts = model.num_experts > 0;
  // In the small Falcon-H1 and Nemotron-H, in_proj has 262 = 2 * 131 outputs, which only tp 2 can split.
  const bool whole = model.mamba2 && model.mamba2->projected() % 4 != 0;
  recipe.model_name_or_path = folder.string();
  recipe.finetuning_type = "full";
  recipe.bf16 = true;
  recipe.target = on_amd() ? "mi300x:8" : "h100:8";
  recipe.mesh = {{whole ? "dp" : "fsdp", experts ? 2 : 4}, {"ep", experts ? 2 : 1}, {"tp", 2}};
  recipe.per_device_train_batch_size = 1;
  recipe.cutoff_len = 40;
  const Request request(recipe, Command::kPlan);
  const StepPlan plan = plan_step(request, {}, Machine::of(request));
  EXPECT_EQ(plan.mesh.size(), 8);
  EXPECT_GT(plan.memory.peak, 0);
  EXPECT_GT(plan.flops, 0);
  EXPECT_FALSE(plan.traffic.empty());
}

INSTANTIATE_TEST_SUITE_P(Families, PlanOfFamily, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Encoders, PlanOfFamily, testing::ValuesIn(kEncoders),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
