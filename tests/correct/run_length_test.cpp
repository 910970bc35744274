// Tests how many steps a run has, compared with Hugging Face's Trainer (tests/reference/run_lengths.py).
#include "run/run_length.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/batches/batches.h"
#include "paths.h"
#include "resolve_run.h"

namespace fettle {
namespace {

using nlohmann::json;

json read_reference(const std::string& name) {
  return json::parse(std::ifstream(source_folder() / "tests/reference" / name));
}

Run run_of(const std::vector<std::string>& words) {
  return make_run(read_recipe("", words), read_reference("models/llama/config.json"), "config.json", 1);
}

// Returns the steps of a run over rows of two tokens.
RunLength length_of(const Run& run, int64_t rows) {
  const std::vector<Example> examples(static_cast<size_t>(rows), Example{{1, 2}, {1, 2}, "rows.jsonl:1"});
  const Batches batches(examples, {.micro_batches = run.batch.micro_batches,
                                   .sequences = run.rows_per_micro_batch(),
                                   .max_length = 8,
                                   .lengths = {8}});
  return run_length(run.length, batches.steps_per_epoch());
}

class LengthsOfTheTrainer : public testing::TestWithParam<size_t> {};

TEST_P(LengthsOfTheTrainer, AreTheSame) {
  const json recorded = read_reference("run_lengths.json")[GetParam()];
  std::vector<std::string> words{"save_strategy=steps"};
  for (const auto& [key, value] : recorded["recipe"].items()) words.push_back(key + "=" + value.dump());
  const RunLength length = length_of(run_of(words), recorded["rows"]);
  const json& steps = recorded["steps"];
  EXPECT_EQ(length.steps_per_epoch, steps["epoch"]);
  EXPECT_EQ(length.total_steps, steps["total"]);
  EXPECT_EQ(length.schedule.total_steps, steps["total"]);
  EXPECT_EQ(length.schedule.warmup_steps, steps["warmup"]);
  EXPECT_EQ(length.save_every, steps["save"]);
  // warmup_ratio means a share of all steps, and so does warmup_steps if it is below 1.
  for (std::string& word : words)
    if (word.starts_with("warmup_steps=0.")) word.replace(0, std::string("warmup_steps").size(), "warmup_ratio");
  EXPECT_EQ(length_of(run_of(words), recorded["rows"]).schedule.warmup_steps, steps["warmup"]);
}

INSTANTIATE_TEST_SUITE_P(Runs, LengthsOfTheTrainer, testing::Range<size_t>(0, 12));

TEST(RunLength, TheRateRisesOverTheWarmUpAndEndsAtZero) {
  const auto run = run_of({"per_device_train_batch_size=1", "gradient_accumulation_steps=2", "num_train_epochs=4",
                           "warmup_ratio=0.25", "lr_scheduler_type=linear"});
  const RunLength length = length_of(run, 20);  // 10 steps per epoch; 10 of the 40 steps are the warm-up
  for (int64_t step = 0; step <= 40; ++step) {
    const double wanted = step < 10 ? static_cast<double>(step) / 10 : static_cast<double>(40 - step) / 30;
    EXPECT_NEAR(length.schedule.multiplier(step), wanted, 1e-12) << step;
  }
}

// Axolotl's default warm-up is 3 % of the steps, but at most 100 steps.
TEST(RunLength, AWarmUpThatIsAShareMayHaveALimit) {
  auto warmup = [](const std::string& words, int64_t rows) {
    std::vector<std::string> all{"per_device_train_batch_size=1", "gradient_accumulation_steps=1", "num_train_epochs=1",
                                 "max_warmup_steps=10", words};
    return length_of(run_of(all), rows).schedule.warmup_steps;
  };
  EXPECT_EQ(warmup("warmup_ratio=0.1", 50), 5);
  EXPECT_EQ(warmup("warmup_ratio=0.1", 500), 10);
  EXPECT_EQ(warmup("warmup_steps=0.1", 500), 10);
  EXPECT_EQ(warmup("warmup_steps=30", 500), 30) << "a number of steps has no limit";
}

// A run of 50 steps, 5 of them the warm-up.
TEST(RunLength, StepsOfWarmupStableDecay) {
  struct Case {
    std::vector<std::string> words;
    int64_t stable, decay;
  };
  for (const Case& c : std::vector<Case>{{{}, 15, 30},
                                         {{"lr_num_decay_steps=10"}, 35, 10},
                                         {{"lr_num_stable_steps=40"}, 40, 5},
                                         {{"lr_num_stable_steps=20", "lr_num_decay_steps=10"}, 20, 10},
                                         {{"lr_num_stable_steps=60"}, 60, 0}}) {
    std::vector<std::string> words{"lr_scheduler_type=warmup_stable_decay", "max_steps=50", "warmup_steps=5"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Schedule schedule = length_of(run_of(words), 20).schedule;
    EXPECT_EQ(schedule.stable_steps, c.stable);
    EXPECT_EQ(schedule.decay_steps, c.decay);
    EXPECT_EQ(schedule.multiplier(std::min<int64_t>(5 + c.stable, 49)), 1);
  }
}

TEST(RunLength, LogsAfterAShareOfAllSteps) {
  EXPECT_EQ(length_of(run_of({"max_steps=50", "logging_steps=0.09"}), 20).logging_steps, 5);
  const RunLength evaluates =
      length_of(run_of({"max_steps=50", "logging_steps=0.2", "val_size=0.1", "eval_strategy=steps"}), 20);
  EXPECT_EQ(evaluates.eval_every, 10);
}

TEST(RunLength, ActsAfterEachIntervalAndAtTheEnd) {
  const auto run =
      run_of({"per_device_train_batch_size=1", "gradient_accumulation_steps=1", "num_train_epochs=2.5",
              "logging_steps=4", "save_strategy=epoch", "val_size=0.1", "eval_strategy=steps", "eval_steps=7"});
  const RunLength length = length_of(run, 6);
  ASSERT_EQ(length.total_steps, 15);
  std::vector<int64_t> logged, saved, evaluated;
  for (int64_t step = 1; step <= 15; ++step) {
    if (length.logs_after(step)) logged.push_back(step);
    if (length.saves_after(step)) saved.push_back(step);
    if (length.evaluates_after(step)) evaluated.push_back(step);
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{4, 8, 12, 15}));
  EXPECT_EQ(saved, (std::vector<int64_t>{6, 12, 15}));
  EXPECT_EQ(evaluated, (std::vector<int64_t>{7, 14, 15}));
  EXPECT_DOUBLE_EQ(length.epoch(15), 2.5);
}

}  // namespace
}  // namespace fettle
