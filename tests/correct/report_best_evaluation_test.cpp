// Tests which evaluation is the best and how patience is counted. Both are as in Trainer and its EarlyStoppingCallback.
#include <gtest/gtest.h>

#include <cmath>

#include "report/best_evaluation.h"
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

void expect(const std::optional<BestEvaluation>& best, int64_t step, double value, int64_t not_better) {
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, step);
  EXPECT_DOUBLE_EQ(best->value, value);
  EXPECT_EQ(best->not_better, not_better);
}

TEST(BestEvaluation, IsTheSmallestLoss) {
  EXPECT_FALSE(best_evaluation({}, {}));
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
  EXPECT_FALSE(best_evaluation(evaluations({NAN}), {}));
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

}  // namespace
}  // namespace fettle
