// Tests that docs/recipe.md is the reference that the key table and the table of stages produce.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/key_help.h"
#include "paths.h"
#include "stages/stages.h"

namespace fettle {
namespace {

TEST(RecipeReference, IsTheCommittedOne) {
  std::filesystem::path file = source_folder() / "docs/recipe.md";
  if (std::getenv("FETTLE_WRITE_REFERENCE")) std::ofstream(file) << recipe_reference_markdown(stage_key_text());
  std::ifstream stream(file);
  std::stringstream committed;
  committed << stream.rdbuf();
  EXPECT_EQ(committed.str(), recipe_reference_markdown(stage_key_text()))
      << "run scripts/write_recipe_reference and commit docs/recipe.md";
}

TEST(RecipeReference, NamesEveryStage) {
  const KeyText text = stage_key_text().at("stage");
  ASSERT_EQ(text.values.size(), stages().size());
  for (size_t i = 0; i < stages().size(); ++i) {
    EXPECT_EQ(text.values[i], stages()[i]->name);
    EXPECT_FALSE(stages()[i]->learned.empty());
    EXPECT_NE(text.help.find(std::string(stages()[i]->learned)), std::string::npos);
  }
}

}  // namespace
}  // namespace fettle
