// Tests the key rope_scaling. The model computes the same as Transformers with the settings that LLaMA-Factory makes
// from this key (tests/reference/rope_scaling.py).
#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "checkpoint/changed/rope_scaling.h"
#include "correct/generate_models.h"
#include "reference_models.h"
#include "run/changes/changed_model.h"
#include "run/model_folders.h"

namespace fettle {
namespace {

ModelFolders changed_models(const Recipe& recipe, bool trains) {
  return change_model(recipe, sft_stage(), named_models(recipe), trains, ModelRepository::Weights::kRequired);
}

class ScaledRope : public testing::TestWithParam<std::string> {};

TEST_P(ScaledRope, HasTheLogitsOfTransformers) {
  const auto cases = nlohmann::json::parse(std::ifstream(source_folder() / "tests/reference/rope_scaling.json"));
  int compared = 0;
  for (const nlohmann::json& each : cases) {
    if (each["model"] != GetParam()) continue;
    ++compared;
    Recipe recipe = reference_recipe(each["model"]);
    recipe.rope_scaling = each["rope_scaling"];
    recipe.cutoff_len = each["cutoff_len"];
    const ModelFolders models = changed_models(recipe, true);
    EXPECT_EQ(models.name_of(models.model), recipe.model_name_or_path);
    recipe.model_name_or_path = models.model;
    Loaded model(recipe);
    const std::string name = recipe.rope_scaling + " of " + each["model"].get<std::string>();
    EXPECT_EQ(model.run.model.config.max_position_embeddings, each["max_position_embeddings"]) << name;
    Generator generator(model.devices, model.run, model.state);
    const std::vector<int32_t> ids = each["ids"];
    EXPECT_LT(largest_difference(generator.logits(ids), each["logits"].get<std::vector<float>>()), 1e-4) << name;
  }
  EXPECT_EQ(compared, 4) << "linear, dynamic, yarn, llama3";
}

// The last two models rotate only a part of each head.
INSTANTIATE_TEST_SUITE_P(Models, ScaledRope, testing::Values("qwen3", "llama", "gemma3", "qwen3_5_text", "glm4_moe"),
                         [](const auto& info) { return info.param; });

TEST(RopeScaling, LeavesTheModelAsItIsWhenRowsFit) {
  Recipe recipe = reference_recipe("qwen3");
  const std::string folder = recipe.model_name_or_path;
  recipe.rope_scaling = "linear";
  recipe.cutoff_len = 128;
  EXPECT_EQ(changed_models(recipe, true).model, folder);
  // Commands that do not train use cutoff_len only if the recipe sets it.
  const auto config = read_json_file(std::filesystem::path(changed_models(recipe, false).model) / "config.json");
  EXPECT_EQ(config["max_position_embeddings"], 256);
  EXPECT_EQ(config["rope_parameters"]["factor"], 2.0);
}

// Transformers 4 writes the field rope_scaling. In a checkpoint with images, the config of the text model is a nested
// object.
TEST(RopeScaling, OfOlderAndNestedConfigs) {
  nlohmann::json config{{"model_type", "unknown"},
                        {"text_config", {{"rope_theta", 500}, {"max_position_embeddings", 100}}}};
  EXPECT_TRUE(scale_rope(config, {.type = "yarn", .length = 401, .at = "r"}, "config.json"));
  EXPECT_EQ(config["text_config"],
            nlohmann::json::parse(R"({"rope_theta": 500, "max_position_embeddings": 500, "rope_scaling":
                {"rope_type": "yarn", "factor": 5.0, "original_max_position_embeddings": 100}})"));
  EXPECT_FALSE(scale_rope(config, {.type = "yarn", .length = 100, .at = "r"}, "config.json"));
  EXPECT_TRUE(scale_rope(config, {.type = "yarn", .length = 200, .at = "r"}, "config.json"))
      << "the factor counts from the length that the model was trained with";
  EXPECT_EQ(config["text_config"]["max_position_embeddings"], 200);
}

// The original length beside the settings of rope wins, so the new settings agree with it.
TEST(RopeScaling, OfAnOriginalLengthBesideTheSettings) {
  nlohmann::json config = read_json_file(reference_model("llama") / "config.json");
  config["original_max_position_embeddings"] = 100;
  EXPECT_TRUE(scale_rope(config, {.type = "yarn", .length = 200, .at = "r"}, "config.json"));
  const ModelConfig model = make_model(config, "config.json").config;
  EXPECT_EQ(model.rope.original_max_position_embeddings, 100);
  EXPECT_EQ(model.rope.factor, 2);
  EXPECT_EQ(model.max_position_embeddings, 200);
}

// Ministral 3 multiplies its queries by a factor that grows in units of the original length.
TEST(RopeScaling, KeepsTheGrowthOfQueries) {
  for (const char* type : {"linear", "yarn", "llama3"})
    for (const char* name : {"ministral3", "mistral3"}) {
      nlohmann::json config = read_json_file(reference_model(name) / "config.json");
      const ModelConfig before = make_model(config, "config.json").config;
      EXPECT_TRUE(scale_rope(config, {.type = type, .length = 128, .at = "r"}, "config.json"));
      const ModelConfig after = make_model(config, "config.json").config;
      EXPECT_EQ(after.rope.rope_type, type);
      EXPECT_EQ(after.rope.factor, 8);
      EXPECT_EQ(after.query_growth, before.query_growth);
      EXPECT_EQ(after.rope.original_max_position_embeddings, before.rope.original_max_position_embeddings);
    }
}

TEST(RopeScaling, SaysThatTheFactorOnScoresGoes) {
  for (const auto& [name, length, said] : {std::tuple{"deepseek_v2", 4096, true}, {"gpt_oss", 4096, false}}) {
    nlohmann::json config = read_json_file(reference_model(name) / "config.json");
    testing::internal::CaptureStderr();
    EXPECT_TRUE(scale_rope(config, {.type = "yarn", .length = length, .at = "r"}, "config.json"));
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("replaces the model's own scaling (yarn)"), std::string::npos) << text;
    EXPECT_EQ(text.find("(mscale_all_dim)") != std::string::npos, said) << text;
  }
}

}  // namespace
}  // namespace fettle
