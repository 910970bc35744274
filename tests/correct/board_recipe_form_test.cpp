// Tests the keys that a form for recipes shows, and the recipe that its words make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "board/recipe_form.h"
#include "config/keys.h"
#include "config/recipe.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(RecipeForm, HasEveryKeyThatIsNotSecret) {
  std::map<std::string, nlohmann::json> form;
  for (const nlohmann::json key : recipe_form_json()) form[key["name"]] = key;
  size_t secret = 0;
  for (const Key& key : recipe_keys()) {
    secret += key.secret;
    EXPECT_EQ(form.contains(std::string(key.name)), !key.secret) << key.name;
  }
  EXPECT_GT(secret, 0u);
  EXPECT_EQ(form.size() + secret, recipe_keys().size());
  EXPECT_EQ(form["html_report"]["kind"], "flag");
  EXPECT_EQ(form["html_report"]["default"], "true");
  EXPECT_EQ(form["learning_rate"]["kind"], "number");
  EXPECT_EQ(form["dataset"]["kind"], "list");
  EXPECT_EQ(form["mesh"]["kind"], "map");
  EXPECT_EQ(form["model_name_or_path"]["kind"], "text");
  EXPECT_THAT(form["stage"]["values"], Contains("dpo"));
  for (const auto& [name, key] : form) EXPECT_NE(key["help"], "") << name;
}

// The form that "Use as a new run" fills leaves these keys out.
TEST(RecipeForm, KnowsTheKeysOfOneRun) {
  std::vector<std::string> names;
  for (const nlohmann::json key : recipe_form_json())
    if (key["of_one_run"] == true) names.push_back(key["name"]);
  EXPECT_THAT(names, testing::UnorderedElementsAre("output_dir", "overwrite_output_dir", "run_name", "logging_dir",
                                                   "resume_from_checkpoint"));
}

TEST(RecipeForm, ItsRecipeIsReadBack) {
  const std::vector<std::string> words = {"model_name_or_path=models/a: b",
                                          "dataset=rows.jsonl,more rows.jsonl",
                                          "learning_rate=5e-5",
                                          "bf16=true",
                                          "mesh.fsdp=2",
                                          "run_name=<b>\"x\"</b>"};
  const TempFolder folder;
  write_text(folder / "recipe.yaml", recipe_yaml(words, "runs/one"));
  const Recipe recipe = read_recipe((folder / "recipe.yaml").string(), {});
  EXPECT_EQ(recipe.model_name_or_path, "models/a: b");
  EXPECT_THAT(recipe.dataset, testing::ElementsAre("rows.jsonl", "more rows.jsonl"));
  EXPECT_EQ(recipe.learning_rate, 5e-5);
  EXPECT_TRUE(recipe.bf16);
  EXPECT_EQ(recipe.mesh.at("fsdp"), 2);
  EXPECT_EQ(recipe.run_name, "<b>\"x\"</b>");
  EXPECT_EQ(recipe.output_dir, "runs/one");
  EXPECT_THAT(recipe_yaml({"learning_rate=5e-5"}, ""), Not(HasSubstr("output_dir")));
}

TEST(RecipeForm, RefusesWhatARecipeCannotHave) {
  const auto error = [](const std::string& word) { return user_error([&] { recipe_yaml({word}, ""); }); };
  EXPECT_THAT(error("learning_rat=1"), HasSubstr("learning_rate"));
  EXPECT_THAT(error("learning_rate=fast"), HasSubstr("learning_rate"));
  EXPECT_THAT(error("hub_token=hf_abc"), HasSubstr("hub_token is secret"));
  EXPECT_THAT(error("hub_token=hf_abc"), Not(HasSubstr("hf_abc")));
  EXPECT_THAT(error("--hub_token=hf_abc"), HasSubstr("hub_token is secret"));
}

}  // namespace
}  // namespace fettle
