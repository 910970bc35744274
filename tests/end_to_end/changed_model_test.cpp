// Keys that change a model before it is trained: the result has the changes, and a run continues only with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<std::string> long_rows(const std::filesystem::path& output) {
  return with(train_words(output, "qwen3"),
              {"finetuning_type=full", "cutoff_len=500", "save_strategy=steps", "save_steps=3", "rope_scaling=yarn"});
}

TEST(RopeScaling, IsInTheResultAndInTheCheckpoint) {
  const TempFolder folder;
  const Outcome run = run_fettle(folder, long_rows(folder / "out"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rope_scaling: yarn by 4: the model takes 512 positions instead of 128"));
  const auto config = nlohmann::json::parse(read_text(folder / "out/config.json"));
  EXPECT_EQ(config["rope_parameters"]["rope_type"], "yarn");
  EXPECT_EQ(config["rope_parameters"]["factor"], 4.0);
  EXPECT_EQ(config["max_position_embeddings"], 512);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "out/tokenizer.json"));
  const auto losses = logged_losses(folder / "out");

  std::filesystem::remove_all(folder / "out/checkpoint-6");
  const Outcome other =
      run_fettle(folder, with(long_rows(folder / "out"), {"resume_from_checkpoint=true", "rope_scaling=linear"}));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("rope_scaling = \"yarn 4\""), HasSubstr("\"linear 4\"")));
  const Outcome resumed = run_fettle(folder, with(long_rows(folder / "out"), {"resume_from_checkpoint=true"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(logged_losses(folder / "out"), ElementsAreArray(losses));

  // The result is a model of the new length, which needs no further scaling.
  const Outcome plan = run_fettle(
      folder, {"data", "model_name_or_path=" + (folder / "out").string(),
               "dataset=" + (reference_model("qwen3").parent_path() / "rows.jsonl").string(), "cutoff_len=400"});
  EXPECT_EQ(plan.code, 0) << plan.err;
}

}  // namespace
}  // namespace fettle
