#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "config/recipe.h"
#include "data_fixtures.h"
#include "inspect/data_command.h"

namespace fettle {
namespace {

TEST(Report, NeedsAModelFolderWithItsVocabularySize) {
  TempFolder folder;
  TestTokenizer().save(folder.path());
  Recipe recipe;
  recipe.data_cache = "off";
  recipe.dataset = {folder.write("a.jsonl", "{\"text\": \"a\"}\n").string()};
  std::ostringstream out;
  auto said = [&]() -> std::string {
    try {
      run_data(Request(recipe, Command::kData), {}, out);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(said().find("`fettle data` needs model_name_or_path"), std::string::npos);
  recipe.model_name_or_path = folder.path().string();
  EXPECT_NE(said().find("config.json is missing"), std::string::npos);
  folder.write("config.json", "{");
  EXPECT_NE(said().find("config.json"), std::string::npos);
  folder.write("config.json", "{}");
  EXPECT_NE(said().find("vocab_size is missing"), std::string::npos);
  folder.write("config.json", "{\"vocab_size\": 7}");
  EXPECT_NE(said().find("a.jsonl:1: token id"), std::string::npos);
}

}  // namespace
}  // namespace fettle
