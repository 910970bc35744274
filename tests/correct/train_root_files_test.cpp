// Tests which files of an earlier run are replaced by a new result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_copies.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "train/root_files.h"

namespace fettle {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

class EarlierResult : public testing::Test {
 protected:
  EarlierResult() {
    recipe.output_dir = (folder / "out").string();
    recipe.finetuning_type = "lora";
    for (const char* file :
         {"notes.txt", "model-mine.safetensors", "train.py", "trainer_log.jsonl", "adapter_model.safetensors",
          "classifier.json", "config.json", "chat_template.jinja", "model-00001-of-00002.safetensors"})
      write_text(folder / "out" / file, "{}");
  }
  // Adds what marks a result of Fettle.
  void add_result() {
    write_text(folder / "out/all_results.json", "{}");
    write_text(folder / "out/trainer_state.json", R"({"stateful_callbacks": {}})");
  }
  std::vector<std::string> names() const {
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    return earlier_result(make_run(recipe, repository.config(), "config.json", 1));
  }
  TempFolder folder;
  Recipe recipe = reference_recipe("llama");
};

TEST_F(EarlierResult, IsEmptyWhereNoRunFinished) {
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(EarlierResult, IsEmptyWhereAnotherToolTrained) {
  add_result();
  write_text(folder / "out/trainer_state.json", R"({"stateful_callbacks": {"TrainerControl": {}}})");
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(EarlierResult, HasFettlesFilesAndNoneOfTheUsers) {
  add_result();
  for (const char* file : {"all_results.json", "adapter_model.safetensors", "classifier.json", "config.json",
                           "chat_template.jinja", "model-00001-of-00002.safetensors", "confusion.png"})
    EXPECT_THAT(names(), Contains(file));
  for (const char* file : {"notes.txt", "model-mine.safetensors", "train.py", "trainer_log.jsonl"})
    EXPECT_THAT(names(), Not(Contains(file)));
}

TEST_F(EarlierResult, LeavesOutTheBaseOfAnAdapter) {
  add_result();
  auto keeps_the_base = [&] {
    for (const char* file : {"config.json", "chat_template.jinja", "model-00001-of-00002.safetensors"})
      EXPECT_THAT(names(), Not(Contains(file)));
    EXPECT_THAT(names(), Contains("classifier.json"));
  };
  write_text(folder / "out/adapter_config.json", nlohmann::json{{"base_model_name_or_path", recipe.output_dir}}.dump());
  keeps_the_base();
  std::filesystem::remove_all(folder / "out");
  recipe.model_name_or_path = copy_model(folder / "out");
  add_result();
  EXPECT_THAT(names(), Not(Contains("model.safetensors")));
  recipe.finetuning_type = "full";
  EXPECT_THAT(names(), Contains("model.safetensors"));
}

}  // namespace
}  // namespace fettle
