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

}  // namespace
}  // namespace fettle
