// Tests runs for which too little disk space is free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/free_space.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "train/disk_space.h"
#include "training_run.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(Disk, TooManyCheckpointsAreRefusedWithALimitThatFits) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto error = [&]() -> std::string {
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    try {
      require_disk(run, repository, {.total_steps = int64_t{1} << 40, .save_every = 1}, {});
    } catch (const DoesNotFit& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(), AllOf(HasSubstr("(1099511627776 checkpoints of"), HasSubstr("are free"),
                             HasSubstr("set save_total_limit: ")));
  // The run may end early, and then has fewer checkpoints.
  recipe.eval_strategy = "steps";
  recipe.val_size = 0.1;
  recipe.early_stopping_patience = 2;
  testing::internal::CaptureStderr();
  EXPECT_EQ(error(), "no error");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("may need "));
  recipe.early_stopping_patience = 0;
  recipe.save_total_limit = 3;
  EXPECT_EQ(error(), "no error");
}

// A checkpoint that was set aside is deleted only with overwrite_output_dir, so only then its bytes count as free.
TEST(Disk, FoldersThatStayDoNotCountAsFree) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const fs::path old = folder / "out/checkpoint-8.abandoned/weights";
  constexpr int64_t kOldBytes = int64_t{1} << 40;
  write_text(old, "");
  write_text(old.parent_path() / "state/manifest.json", "{}");
  fs::resize_file(old, kOldBytes);  // a sparse file
  // The run needs half of these bytes beside those that are free.
  const auto needs_more = [&](std::optional<int64_t> resumed_step) {
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    const int64_t saves = (free_bytes(folder.path()) + kOldBytes / 2) / checkpoint_bytes(run, repository);
    require_disk(run, repository, {.total_steps = saves, .save_every = 1}, {.resumed_step = resumed_step});
  };
  EXPECT_THROW(needs_more({}), DoesNotFit);
  recipe.overwrite_output_dir = true;
  EXPECT_NO_THROW(needs_more({}));
  recipe.resume_from_checkpoint = "true";
  EXPECT_NO_THROW(needs_more({})) << "there is no checkpoint from which the run could continue";
  EXPECT_THROW(needs_more(1), DoesNotFit) << "a run that goes on deletes nothing";
}

}  // namespace
}  // namespace fettle
