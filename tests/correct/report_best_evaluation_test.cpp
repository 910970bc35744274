// Tests which evaluation is the best and how patience is counted. Both are as in Trainer and its EarlyStoppingCallback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/repository.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "reference_models.h"
#include "report/best_evaluation.h"
#include "report/recorder.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

std::vector<LogRecord> evaluations(const std::vector<double>& losses) {
  std::vector<LogRecord> out;
  for (size_t i = 0; i < losses.size(); ++i) {
    out.push_back({.step = static_cast<int64_t>(10 * i + 5), .values = {{"loss", -100}}});  // a training record
    out.push_back({.step = static_cast<int64_t>(10 * i + 10),
                   .values = {{"eval_loss", losses[i]}, {"eval_accuracy", 1 - losses[i]}}});
  }
  return out;
}

void expect(const BestEvaluation& best, int64_t step, double value, int64_t not_better) {
  ASSERT_TRUE(best.value);
  EXPECT_EQ(best.step, step);
  EXPECT_DOUBLE_EQ(*best.value, value);
  EXPECT_EQ(best.not_better, not_better);
}

TEST(BestEvaluation, IsTheSmallestLoss) {
  EXPECT_FALSE(best_evaluation({}, {}).value);
  expect(best_evaluation(evaluations({0.9}), {}), 10, 0.9, 0);
  expect(best_evaluation(evaluations({0.9, 0.5, 0.7, 0.6}), {}), 20, 0.5, 2);
  expect(best_evaluation(evaluations({0.9, 0.5, 0.5}), {}), 20, 0.5, 1);
}

TEST(BestEvaluation, MayBeTheLargestFigure) {
  expect(best_evaluation(evaluations({0.9, 0.5, 0.7}), {.metric = "eval_accuracy", .greater_is_better = true}), 20, 0.5,
         1);
  expect(best_evaluation(evaluations({0.9, 0.5, 0.7}), {.greater_is_better = true}), 10, 0.9, 2);
}

// An improvement below the threshold becomes the best evaluation, but does not reset the patience.
TEST(BestEvaluation, GainsUpToTheThresholdUseUpPatience) {
  expect(best_evaluation(evaluations({0.9, 0.85, 0.8}), {.threshold = 0.1}), 30, 0.8, 2);
  expect(best_evaluation(evaluations({0.9, 0.7, 0.65}), {.threshold = 0.1}), 30, 0.65, 1);
}

TEST(BestEvaluation, IsNeverNotFinite) {
  expect(best_evaluation(evaluations({0.9, NAN, -INFINITY}), {}), 10, 0.9, 2);
}

// The first evaluation has no earlier one to be better than.
TEST(BestEvaluation, WithoutAFiniteValueUsesUpPatience) {
  for (const int64_t count : {1, 2, 5}) {
    const BestEvaluation best =
        best_evaluation(evaluations(std::vector<double>(static_cast<size_t>(count), NAN)), {.threshold = 0.1});
    EXPECT_FALSE(best.value);
    EXPECT_EQ(best.not_better, count - 1);
  }
  expect(best_evaluation(evaluations({NAN, NAN, 0.9}), {}), 30, 0.9, 0);
}

// trainer_state.json has no values that are not finite. An evaluation without its loss still uses up patience.
TEST(BestEvaluation, CountsAnEvaluationThatLostItsLoss) {
  TrainerState state{.log_history = evaluations({0.9, NAN})};
  state.log_history.back().values["eval_runtime"] = 1;
  const TempFolder folder;
  write_trainer_state(folder / "trainer_state.json", state);
  const TrainerState read = read_trainer_state(folder / "trainer_state.json");
  ASSERT_FALSE(read.log_history.back().values.contains("eval_loss"));
  expect(best_evaluation(read.log_history, {}), 10, 0.9, 1);
}

TEST(BestCheckpoint, IsTheBestEvaluationThatHasOne) {
  RunRecord record{.trainer = {.log_history = evaluations({0.9, 0.5, 0.7})}};
  choose_best_checkpoint(record, {});
  EXPECT_EQ(record.trainer.best_model_checkpoint, "");
  record.checkpoints = {{10, "a"}, {30, "c"}, {40, "of a step without an evaluation"}};
  choose_best_checkpoint(record, {});
  EXPECT_EQ(record.trainer.best_model_checkpoint, "c");
  choose_best_checkpoint(record, {.greater_is_better = true});
  EXPECT_EQ(record.trainer.best_model_checkpoint, "a");
}

// Records evaluations of a run with this recipe, and checks after which of them it saves a checkpoint.
class Saves : public testing::Test {
 protected:
  Saves() {
    recipe_.model_name_or_path = reference_model("llama").string();
    recipe_.output_dir = (folder_ / "out").string();
    recipe_.val_size = 0.1;
    recipe_.eval_strategy = "steps";
    recipe_.load_best_model_at_end = true;
  }
  void start(int64_t save_every) {
    const ModelRepository repository = ModelRepository::open(recipe_.model_name_or_path);
    run_.emplace(make_run(recipe_, repository.config(), "config.json", 1));
    length_ = {.total_steps = 100, .save_every = save_every, .eval_every = 1};
    recorder_.emplace(*run_, length_, ProgressOptions{}, RunRecord{}, false);
  }
  bool after(int64_t step, double loss) {
    recorder_->step({.loss = 1}, {}, step, 0, false);
    recorder_->evaluation({.loss = loss}, step);
    return recorder_->saves();
  }
  std::string best() const {
    return std::filesystem::path(recorder_->record().trainer.best_model_checkpoint).filename().string();
  }

  TempFolder folder_;
  Recipe recipe_;
  std::optional<fettle::Run> run_;
  RunLength length_;
  std::optional<Recorder> recorder_;
};

TEST_F(Saves, ABetterCheckpointThanTheSavedOnesAlthoughTheBestWasNotWritten) {
  recipe_.save_strategy = "best";
  start(0);
  EXPECT_TRUE(after(1, 0.9));
  EXPECT_TRUE(after(2, 0.5));
  recorder_->not_saved(checkpoint_path(folder_ / "out", 2));
  EXPECT_FALSE(after(3, 0.95));
  EXPECT_TRUE(after(4, 0.7));
  EXPECT_EQ(best(), "checkpoint-4");
  EXPECT_FALSE(after(5, 0.8));
  EXPECT_EQ(best(), "checkpoint-4");
}

// The checkpoint at the early end may be the best one that was saved.
TEST_F(Saves, TheStepAtWhichTheRunEndsEarly) {
  recipe_.save_strategy = "steps";
  recipe_.early_stopping_patience = 2;
  start(2);
  EXPECT_FALSE(after(1, 0.5));
  EXPECT_TRUE(after(2, 0.8));
  EXPECT_TRUE(after(3, 0.7));
  EXPECT_TRUE(recorder_->ends_early());
  EXPECT_EQ(best(), "checkpoint-3");
}

TEST_F(Saves, NothingAndWarnsOnceWithoutTheMetric) {
  recipe_.save_strategy = "best";
  recipe_.early_stopping_patience = 2;
  start(0);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(after(1, NAN));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("the evaluation at step 1 has no finite eval_loss"),
                             testing::HasSubstr("save_strategy: best saves no checkpoint")));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(after(2, NAN));
  EXPECT_FALSE(recorder_->ends_early());
  EXPECT_FALSE(after(3, NAN));
  EXPECT_TRUE(recorder_->ends_early());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(testing::HasSubstr("no finite")));
}

}  // namespace
}  // namespace fettle
