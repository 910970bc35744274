#include <gtest/gtest.h>

#include "step/state/load_meter.h"

namespace fettle {
namespace {

constexpr int64_t kGB = 1'000'000'000;

TEST(LoadProgress, WithoutATerminalALongLoadPrintsALinePerQuarter) {
  LoadProgressText text(8 * kGB, false);
  EXPECT_EQ(text.after(kGB, 1), "");
  EXPECT_EQ(text.after(2 * kGB, 3), "loading weights: 3.0 of 8.0 GB, 1.00 GB/s");
  EXPECT_EQ(text.after(kGB / 2, 3.5), "") << "still the second quarter";
  EXPECT_EQ(text.after(kGB / 2, 4), "loading weights: 4.0 of 8.0 GB, 1.00 GB/s");
  EXPECT_EQ(text.after(4 * kGB, 8), "") << "the end has its own line";
  EXPECT_EQ(text.at_end(8), "loaded 8.0 GB of weights in 8.0 s, 1.00 GB/s");
}

TEST(LoadProgress, WithoutATerminalAQuickLoadPrintsNothing) {
  LoadProgressText text(4 * kGB, false);
  EXPECT_EQ(text.after(2 * kGB, 0.5), "");
  EXPECT_EQ(text.after(2 * kGB, 1), "");
  EXPECT_EQ(text.at_end(1), "");
}

TEST(LoadProgress, OnATerminalALiveLine) {
  LoadProgressText text(4 * kGB, true);
  EXPECT_EQ(text.after(kGB, 0.1), "");
  EXPECT_EQ(text.after(kGB, 0.5), "loading weights: 2.0 of 4.0 GB, 4.00 GB/s");
  EXPECT_EQ(text.after(kGB / 10, 0.6), "");
  EXPECT_NE(text.after(kGB / 10, 0.8), "");
}

}  // namespace
}  // namespace fettle
