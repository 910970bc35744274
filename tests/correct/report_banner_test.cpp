// Tests the texts before and after a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/banner.h"

namespace fettle {
namespace {

using testing::HasSubstr;

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
