// Tests the values of a Run that resolve derives from the recipe.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "resolve_run.h"

namespace fettle {
namespace {

// Without training, fsdp takes the place of pp, or dp if fsdp does not divide the weights.
TEST(Resolve, APipelineIsForTraining) {
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  auto title = [&](const std::string& mesh, int64_t devices, Purpose purpose) {
    const Recipe recipe = read_recipe("", {"mesh=" + mesh});
    return mesh_title(
        make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, devices, purpose).sharding.mesh());
  };
  EXPECT_EQ(title("pp=2,tp=2", 4, Purpose::kTraining), "mesh pp 2 x tp 2");
  EXPECT_EQ(title("pp=2,tp=2", 4, Purpose::kInference), "mesh fsdp 2 x tp 2");
  EXPECT_EQ(title("pp=2,fsdp=2", 4, Purpose::kEvaluation), "mesh fsdp 4");
  EXPECT_EQ(title("pp=3", 3, Purpose::kInference), "mesh dp 3") << "fsdp 3 does not divide the weights";
}

// LLaMA-Factory's keys choose an optimizer although `optim` is given.
TEST(Resolve, KeysThatChooseAnOptimizer) {
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  for (const auto& [key, rule] :
       {std::pair{"use_muon", "muon"}, {"use_adam_mini", "adam_mini"}, {"use_apollo", "apollo_adamw"}}) {
    const Recipe recipe = read_recipe("", {"finetuning_type=full", "optim=adamw_torch", std::string(key) + "=true"});
    const auto run = make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, 1);
    EXPECT_EQ(run.optimizer.rule->name, rule);
  }
}

}  // namespace
}  // namespace fettle
