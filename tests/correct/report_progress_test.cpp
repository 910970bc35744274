// Tests progress lines and rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/progress.h"

namespace fettle {
namespace {

using testing::HasSubstr;

TEST(FormatProgress, ShowsAllValues) {
  EXPECT_EQ(format_progress({.step = 120,
                             .total_steps = 900,
                             .epoch = 0.4,
                             .loss = 1.83421,
                             .learning_rate = 9.6e-5,
                             .grad_norm = 0.714,
                             .tokens_per_second = 1520.4,
                             .share = 0.62,
                             .memory_bytes = 1'900'000'000,
                             .memory_limit = 23'400'000'000,
                             .seconds_left = 492.7}),
            "step 120/900 (13%) | epoch 0.40 | loss 1.8342 | lr 9.6e-05 | grad 0.714 | 1,520 tokens/s | 62% of peak | "
            "1.9 GB of 23.4 GB | 0:08:12 left");
}

TEST(FormatProgress, ShowsRewards) {
  EXPECT_EQ(format_progress({.step = 7,
                             .total_steps = 12,
                             .grad_norm = 0.5,
                             .figures = {{"rewards/accuracies", 0.75}, {"rewards/margins", 0.01234}}}),
            "step 7/12 (58%) | grad 0.5 | rewards/accuracies 0.75 | rewards/margins 0.0123");
}

TEST(FormatProgress, UnknownValuesAreLeftOut) {
  EXPECT_EQ(format_progress({.step = 1, .total_steps = 3, .loss = 2.0}), "step 1/3 (33%) | loss 2.0000");
  EXPECT_EQ(format_progress({.step = 0, .total_steps = 0}), "step 0/0");
  EXPECT_THAT(format_progress({.step = 1, .total_steps = 3, .tokens_per_second = 12.34, .memory_bytes = 1'000'000'000}),
              HasSubstr("| 12.3 tokens/s | 1.0 GB"));
  EXPECT_THAT(format_progress({.step = 1, .total_steps = 3, .memory_bytes = 1'840'000, .memory_limit = 25'280'000'000}),
              HasSubstr("| 1.8 MB of 25.3 GB"));
  EXPECT_THAT(format_progress({.step = 1, .total_steps = 3, .tokens_per_second = 1234567.8}),
              HasSubstr(" 1,234,568 tokens/s"));
}

// Takes steps of known lengths. Each step has 100 tokens and 1,000 floating-point operations.
class Steps {
 public:
  explicit Steps(Progress& progress) : progress_(progress) {}

  void take(int64_t step, double seconds, bool warm = true) {
    progress_.start_step(now_);
    now_ += std::chrono::microseconds(std::llround(seconds * 1e6));
    progress_.finish_step({.step = step,
                           .epoch = 0.5,
                           .loss = 2,
                           .learning_rate = 1e-4,
                           .grad_norm = 1,
                           .real_tokens = 100,
                           .flops = 1000,
                           .warm = warm},
                          now_);
    now_ += std::chrono::seconds(5);  // work between steps, which does not count
  }

 private:
  Progress& progress_;
  Clock::time_point now_;
};

TEST(Progress, StepsThatCompileAreNotTimed) {
  Progress progress({.total_steps = 100, .logging_steps = 1000, .peak_flops = 1e5});
  Steps steps(progress);
  steps.take(1, 1);
  EXPECT_FALSE(progress.tokens_per_second().has_value()) << "the first step";
  EXPECT_FALSE(progress.view().seconds_left.has_value());
  EXPECT_EQ(progress.seconds_left(), 0);
  steps.take(2, 1, false);
  EXPECT_FALSE(progress.tokens_per_second().has_value());
  steps.take(3, 0.02);
  steps.take(4, 0.03);
  ASSERT_TRUE(progress.tokens_per_second().has_value());
  EXPECT_DOUBLE_EQ(*progress.tokens_per_second(), 200 / 0.05);
  EXPECT_DOUBLE_EQ(*progress.share(), 2000 / 0.05 / 1e5);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 96 * 0.025);
  EXPECT_EQ(progress.total_tokens(), 400);
}

TEST(Progress, AMarkBeginsANewSpan) {
  Progress progress({.total_steps = 10, .logging_steps = 1000});
  Steps steps(progress);
  steps.take(1, 1);
  steps.take(2, 0.04);
  progress.mark();
  EXPECT_FALSE(progress.tokens_per_second().has_value());
  steps.take(3, 0.01);
  steps.take(4, 0.01);
  EXPECT_DOUBLE_EQ(*progress.tokens_per_second(), 200 / 0.02);
  EXPECT_DOUBLE_EQ(progress.seconds_left(), 6 * 0.06 / 3) << "the time left uses all timed steps";
  EXPECT_FALSE(progress.share().has_value()) << "no peak is known";
}

TEST(Progress, AResumedRunCountsItsOwnSteps) {
  Progress progress({.total_steps = 1000, .logging_steps = 5000});
  Steps steps(progress);
  steps.take(901, 1);
  EXPECT_FALSE(progress.tokens_per_second().has_value()) << "step 901 is the first of this process";
  steps.take(902, 1);
  EXPECT_DOUBLE_EQ(*progress.tokens_per_second(), 100);
  EXPECT_EQ(progress.total_tokens(), 200);
}

}  // namespace
}  // namespace fettle
