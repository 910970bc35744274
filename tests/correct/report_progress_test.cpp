// Tests progress lines, rates, banners and peak rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "config/recipe.h"
#include "report/progress.h"
#include "run/device_request.h"
#include "runtime/vendors/targets.h"

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

void work(Progress& progress, int64_t step, int milliseconds, bool warm = true) {
  progress.start_step();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  progress.finish_step({.step = step,
                        .epoch = 0.5,
                        .loss = 2,
                        .learning_rate = 1e-4,
                        .grad_norm = 1,
                        .real_tokens = 100,
                        .flops = 1000,
                        .warm = warm});
}

// A sleep lasts at least as long as requested. So the rates have an upper bound that is true on any machine.
TEST(Progress, StepsThatCompileAreNotTimed) {
  Progress progress({.total_steps = 100, .logging_steps = 1000, .peak_flops = 1e5});
  work(progress, 1, 1);
  EXPECT_FALSE(progress.tokens_per_second().has_value()) << "the first step";
  EXPECT_FALSE(progress.view().seconds_left.has_value());
  EXPECT_EQ(progress.seconds_left(), 0);
  work(progress, 2, 1, false);
  EXPECT_FALSE(progress.tokens_per_second().has_value());
  work(progress, 3, 20);
  work(progress, 4, 20);
  ASSERT_TRUE(progress.tokens_per_second().has_value());
  EXPECT_LE(*progress.tokens_per_second(), 100 / 0.020);
  EXPECT_GT(*progress.tokens_per_second(), 0);
  EXPECT_NEAR(*progress.share(), *progress.tokens_per_second() * 10 / 1e5, 1e-9);
  EXPECT_GE(progress.seconds_left(), 96 * 0.020);
  EXPECT_EQ(progress.total_tokens(), 400);
}

TEST(Progress, AMarkBeginsANewSpan) {
  Progress progress({.total_steps = 10, .logging_steps = 1000});
  work(progress, 1, 1);
  work(progress, 2, 40);
  progress.mark();
  EXPECT_FALSE(progress.tokens_per_second().has_value());
  work(progress, 3, 1);
  work(progress, 4, 1);
  EXPECT_GT(progress.seconds_left(), 6 * 0.042 / 3 * 0.99) << "the time left uses all timed steps";
  EXPECT_FALSE(progress.share().has_value()) << "no peak is known";
}

TEST(Progress, AResumedRunCountsItsOwnSteps) {
  Progress progress({.total_steps = 1000, .logging_steps = 5000});
  work(progress, 901, 1);
  EXPECT_FALSE(progress.tokens_per_second().has_value()) << "step 901 is the first of this process";
  work(progress, 902, 1);
  EXPECT_TRUE(progress.tokens_per_second().has_value());
  EXPECT_EQ(progress.total_tokens(), 200);
}

TEST(DataSheetFlops, KnowsDriversNames) {
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 80GB HBM3", DType::kBF16), target_named("h100").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA A100-SXM4-40GB", DType::kBF16), target_named("a100-40").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA GB200", DType::kBF16), target_named("gb200").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA GeForce RTX 4090", DType::kF16), target_named("rtx4090").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("AMD Instinct MI300X", DType::kBF16), target_named("mi300x").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 PCIe", DType::kBF16), target_named("h100-pcie").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 NVL", DType::kBF16), 0) << "a slower card of the same name";
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 PCIe MIG 1g.10gb", DType::kBF16), 0) << "a part of a card";
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 80GB HBM3", DType::kF32), 0) << "the table has bf16 only";
  EXPECT_EQ(data_sheet_flops("Some Other GPU", DType::kBF16), 0);
  EXPECT_EQ(data_sheet_flops("", DType::kBF16), 0);
}

// Returns the measured peak when a product takes n^3 / rate seconds, with one rate for f32 and one for bf16.
double best_of(double f32_rate, double bf16_rate, DType compute) {
  return best_product_flops(
      [&](int64_t n, DType dtype) {
        return static_cast<double>(n * n * n) / (dtype == DType::kF32 ? f32_rate : bf16_rate);
      },
      compute);
}

TEST(PeakFlops, TheFastestWayCounts) {
  EXPECT_DOUBLE_EQ(best_of(1e11, 2e11, DType::kBF16), 2 * 2e11) << "a CPU with bfloat16 arithmetic";
  EXPECT_DOUBLE_EQ(best_of(1e11, 3e10, DType::kBF16), 2 * 1e11) << "a CPU without it widens to float32";
  EXPECT_DOUBLE_EQ(best_of(1e11, 3e10, DType::kF16), 2 * 1e11);
  EXPECT_DOUBLE_EQ(best_of(1e11, 9e11, DType::kF32), 2 * 1e11) << "float32 products are not done in fewer bits";
}

TEST(PeakFlops, LargerMatricesAreTriedWhileTheyAreQuick) {
  std::vector<int64_t> sizes;
  best_product_flops(
      [&](int64_t n, DType) {
        sizes.push_back(n);
        return n < 1024 ? 0.001 : 0.1;
      },
      DType::kF32);
  EXPECT_EQ(sizes, (std::vector<int64_t>{512, 1024}));
}

TEST(PeakFlops, TheCpuIsMeasured) {
  Recipe recipe;
  recipe.plugin = "cpu";
  const Devices devices(device_request(recipe));
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const double flops = peak_flops(devices, dtype);
    EXPECT_GT(flops, 1e7);
    EXPECT_LT(flops, 1e16);
  }
}

TEST(FormatBanner, LikeHuggingFacesTrainer) {
  EXPECT_EQ(format_banner({.examples = 12345,
                           .epochs = 3,
                           .batch_per_device = 2,
                           .total_batch = 16,
                           .accumulation = 4,
                           .total_steps = 2316,
                           .trainable_parameters = 2442240,
                           .all_parameters = 137000000,
                           .devices = "cpu (2 devices)"}),
            "***** Running training *****\n"
            "  Num examples = 12,345\n"
            "  Num Epochs = 3\n"
            "  Instantaneous batch size per device = 2\n"
            "  Total train batch size (w. parallel, distributed & accumulation) = 16\n"
            "  Gradient Accumulation steps = 4\n"
            "  Total optimization steps = 2,316\n"
            "  Number of trainable parameters = 2,442,240 of 137,000,000 (1.783%)\n"
            "  Devices = cpu (2 devices)");
  EXPECT_THAT(format_banner({.resumed_step = 500}), HasSubstr("\n  Continuing from step = 500"));
}

TEST(FormatMetrics, AlignedAndSorted) {
  EXPECT_EQ(format_metrics("train", {{"train_runtime", 83.456},
                                     {"epoch", 3},
                                     {"train_loss", 1.23456},
                                     {"num_input_tokens_seen", 51200},
                                     {"total_flos", 3.5 * 1073741824.0 * 1000}}),
            "***** train metrics *****\n"
            "  epoch                 =        3.0\n"
            "  num_input_tokens_seen =      51200\n"
            "  total_flos            =     3500GF\n"
            "  train_loss            =     1.2346\n"
            "  train_runtime         = 0:01:23.46");
  EXPECT_THAT(format_metrics("eval", {{"eval_runtime", 59.999}}), HasSubstr("0:01:00.00"));
}

}  // namespace
}  // namespace fettle
