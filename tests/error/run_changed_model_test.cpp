// Tests changes to a model that cannot be made: the message names the key and the remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "config/recipe.h"
#include "environment.h"
#include "paths.h"
#include "run/changes/changed_model.h"
#include "run/model_folders.h"
#include "stages/stages.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const Recipe& recipe) {
  return user_error(
      [&] { change_model(recipe, sft_stage(), named_models(recipe), true, ModelRepository::Weights::kRequired); });
}

Recipe recipe_of(const std::string& family) {
  Recipe recipe;
  recipe.model_name_or_path = (source_folder() / "tests/reference/models" / family).string();
  recipe.places.set("rope_scaling", "r.yaml:3");
  return recipe;
}

TEST(ChangedModel, RopeScalingNeedsRope) {
  Recipe recipe = recipe_of("baichuan13b");
  recipe.rope_scaling = "yarn";
  recipe.cutoff_len = 1 << 20;
  EXPECT_THAT(refusal(recipe), AllOf(HasSubstr("r.yaml:3: rope_scaling: "), HasSubstr("remove the key")));
}

// Transformers reads no other scaling of phi3 than longrope.
TEST(ChangedModel, RopeScalingOfPhi3) {
  Recipe recipe = recipe_of("phi3");
  recipe.rope_scaling = "linear";
  recipe.cutoff_len = 1 << 16;
  EXPECT_THAT(refusal(recipe),
              AllOf(HasSubstr("r.yaml:3: rope_scaling: "), HasSubstr("phi3"), HasSubstr("remove the key")));
}

TEST(ChangedModel, DynamicRopeOfQueriesThatGrow) {
  Recipe recipe = recipe_of("ministral3");
  recipe.rope_scaling = "dynamic";
  recipe.cutoff_len = 1 << 16;
  EXPECT_THAT(refusal(recipe),
              AllOf(HasSubstr("r.yaml:3: rope_scaling: "), HasSubstr("llama_4_scaling_beta"), HasSubstr("use yarn")));
}

TEST(ChangedModel, RopeScalingNeedsTheModelsLength) {
  const TempFolder folder;
  write_json_file(folder / "config.json", {{"model_type", "unknown"}});
  Recipe recipe = recipe_of("llama");
  recipe.model_name_or_path = folder.path().string();
  recipe.rope_scaling = "linear";
  EXPECT_THAT(refusal(recipe), AllOf(HasSubstr("r.yaml:3: rope_scaling: "), HasSubstr("max_position_embeddings")));
}

TEST(ChangedModel, ACacheThatCannotBeWrittenHasARemedy) {
  const Environment cache("FETTLE_CACHE", "/proc/fettle");
  Recipe recipe = recipe_of("llama");
  recipe.rope_scaling = "linear";
  recipe.cutoff_len = 1 << 16;
  EXPECT_THAT(refusal(recipe), AllOf(HasSubstr("/proc/fettle/models"), HasSubstr("set FETTLE_CACHE to a folder")));
}

}  // namespace
}  // namespace fettle
