#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "correct/generate_models.h"
#include "generate/chat.h"
#include "generate/generate.h"
#include "run/model_folders.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string generate_error(const Recipe& recipe, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out;
  const std::string message =
      user_error([&] { run_generate(Request(recipe, Command::kGenerate), in, LinesFrom::kPipe, out); });
  EXPECT_EQ(out.str(), "");
  return message;
}

std::string chat_error(const Recipe& recipe) {
  std::istringstream in("hi\n");
  std::ostringstream out, remarks;
  return user_error([&] { run_chat(Request(recipe, Command::kChat), in, false, out, remarks); });
}

TEST(GenerateErrors, Prompts) {
  Recipe recipe = reference_recipe("llama");
  EXPECT_THAT(generate_error(recipe), AllOf(HasSubstr("there is no prompt"), HasSubstr("prompt=")));
  EXPECT_THAT(generate_error(recipe, "\n  \n"), HasSubstr("there is no prompt"));
  EXPECT_THAT(generate_error(recipe, "\n" + std::string(300, '#')),
              AllOf(HasSubstr("standard input, line 2"), HasSubstr("takes at most 128"),
                    HasSubstr("max_position_embeddings"), HasSubstr("shorten")));
  recipe.places.set("prompt", "r.yaml:3");
  EXPECT_THAT(generate_error(recipe), HasSubstr("r.yaml:3: prompt is empty"));
  recipe.prompt = std::string(300, '#');
  EXPECT_THAT(generate_error(recipe), AllOf(HasSubstr("r.yaml:3"), HasSubstr("the prompt has 300 tokens")));
  recipe.prompt = "é";  // a character that is not in this tokenizer's vocabulary
  EXPECT_THAT(generate_error(recipe), HasSubstr("the prompt is empty"));
}

TEST(GenerateErrors, PromptsAreCheckedBeforeDevicesAreOpened) {
  Recipe recipe = reference_recipe("llama");
  recipe.plugin = "/no/such/plugin.so";
  recipe.prompt = std::string(300, '#');
  EXPECT_THAT(generate_error(recipe), HasSubstr("the prompt has 300 tokens"));
}

TEST(GenerateErrors, Templates) {
  Recipe recipe = reference_recipe("llama");
  EXPECT_THAT(chat_error(recipe), AllOf(HasSubstr("no chat template"), HasSubstr("chatml")));
  recipe.template_name = "chatmml";
  recipe.prompt = "hi";
  EXPECT_THAT(chat_error(recipe), AllOf(HasSubstr("chatmml"), HasSubstr("chatml")));
  EXPECT_THAT(generate_error(recipe), HasSubstr("chatmml"));
}

TEST(GenerateErrors, DatasetRows) {
  TempFolder temp;
  Recipe recipe = reference_recipe("llama");
  recipe.dataset = {(temp / "rows.jsonl").string()};
  write_text(temp / "rows.jsonl",
             R"({"text": "fine"})"
             "\n"
             R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})"
             "\n");
  EXPECT_THAT(generate_error(recipe), AllOf(HasSubstr("rows.jsonl:2"), HasSubstr("template")));
  write_text(temp / "rows.jsonl", R"({"text": ")" + std::string(300, '#') + "\"}\n");
  EXPECT_THAT(generate_error(recipe), AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("300 tokens")));
}

TEST(GenerateErrors, ModelFolders) {
  TempFolder temp;
  Recipe recipe = reference_recipe("llama");
  recipe.prompt = "hi";
  recipe.model_name_or_path.clear();
  EXPECT_THAT(generate_error(recipe), HasSubstr("model_name_or_path"));
  EXPECT_THAT(chat_error(recipe), HasSubstr("model_name_or_path"));
  std::filesystem::copy(kReferenceModels / "llama", temp / "model");
  recipe.model_name_or_path = (temp / "model").string();
  write_text(temp / "model/generation_config.json", R"({"eos_token_id": "end"})");
  EXPECT_THAT(generate_error(recipe), AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id is \"end\"")));
}

TEST(GenerateErrors, OutputThatCannotBeWritten) {
  Recipe recipe = reference_recipe("llama");
  recipe.prompt = "hi";
  recipe.max_new_tokens = 2;
  std::istringstream in;
  std::ofstream full("/dev/full");
  EXPECT_THAT(user_error([&] { run_generate(Request(recipe, Command::kGenerate), in, LinesFrom::kPipe, full); }),
              HasSubstr("cannot write"));
}

}  // namespace
}  // namespace fettle
