// Tests the loss plot: smoothing, the positions of lines and texts, unusual curves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "environment.h"
#include "report/canvas.h"
#include "report/plot.h"
#include "temp_folder.h"

namespace fettle {
namespace {

LossCurves falling(int64_t steps) {
  LossCurves curves{"tiny-llama, LoRA", {}, {}};
  for (int64_t i = 1; i <= steps; ++i) {
    const double t = static_cast<double>(i);
    curves.training.push_back(
        {10 * i, 1.1 + 2.4 * std::exp(-t / 20) + 0.12 * std::sin(t * 12.9898) * std::cos(t * 4.1)});
    if (i % 15 == 0) curves.evaluation.push_back({10 * i, 1.22 + 2.3 * std::exp(-t / 20)});
  }
  return curves;
}

std::string drawn(const LossCurves& curves) {
  const TempFolder folder;
  write_loss_plot(folder / "training_loss", curves);
  EXPECT_THAT(read_text(folder / "training_loss.png"), testing::StartsWith("\x89PNG\r\n"));
  const std::string svg = read_text(folder / "training_loss.svg");
  EXPECT_THAT(svg, testing::HasSubstr("<svg"));
  EXPECT_THAT(svg, testing::HasSubstr("</svg>"));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr("nan")));
  EXPECT_THAT(svg, testing::Not(testing::HasSubstr("inf")));
  return svg;
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// The values follow LLaMA-Factory's formula: for 5 values, the weight is 1.8 (sigmoid(0.25) - 0.5).
TEST(Smooth, IsTheMovingAverage) {
  const std::vector<double> got = smooth({4, 3, 2, 2, 5});
  const double w = 1.8 * (1 / (1 + std::exp(-0.25)) - 0.5);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_DOUBLE_EQ(got[0], 4);
  EXPECT_DOUBLE_EQ(got[1], 4 * w + 3 * (1 - w));
  EXPECT_DOUBLE_EQ(got[2], got[1] * w + 2 * (1 - w));
  EXPECT_NEAR(got[4], 4.6658, 1e-4);
  EXPECT_TRUE(smooth({}).empty());
}

TEST(LossCurves, AreTakenFromTheLog) {
  const LossCurves curves = loss_curves({{10, 0.1, {{"loss", 2.5}, {"learning_rate", 1e-4}}},
                                         {10, 0.1, {{"eval_loss", 2.6}}},
                                         {20, 0.2, {{"loss", 2.0}}},
                                         {20, 0.2, {{"train_runtime", 3.0}, {"train_loss", 2.2}}}},
                                        "run");
  ASSERT_EQ(curves.training.size(), 2u);
  ASSERT_EQ(curves.evaluation.size(), 1u);
  EXPECT_EQ(curves.training[1].step, 20);
  EXPECT_EQ(curves.training[1].loss, 2.0);
  EXPECT_EQ(curves.evaluation[0].loss, 2.6);
}

TEST(LossPlot, DrawsTheThreeSeriesInTheirColours) {
  const std::string svg = drawn(falling(120));
  EXPECT_EQ(count(svg, "rgb(15%,39%,92%)"), 2u) << "raw: the curve and its legend";
  EXPECT_EQ(count(svg, "rgb(11%,31%,85%)"), 2u) << "smoothed: the curve and its legend";
  EXPECT_EQ(count(svg, "rgb(92%,35%,5%)"), 2u + 8u) << "evaluation: the curve, its legend and 8 dots";
}

TEST(LossPlot, IsTheSameEveryTime) {
  EXPECT_TRUE(drawn(falling(50)) == drawn(falling(50)));
}

TEST(LossPlot, OddCurves) {
  drawn({"nothing", {}, {}});
  drawn({"one point", {{1, 2.5}}, {}});
  drawn({"one point each", {{1, 2.5}}, {{1, 2.6}}});
  drawn({"flat", {{1, 2}, {2, 2}, {3, 2}}, {}});
  drawn({"zero", {{1, 0}, {2, 0}}, {}});
  drawn({"huge", {{1, 1e30}, {2, 1e-30}}, {}});
  drawn({"negative", {{1, -1e-8}, {2, 1}}, {}});
  EXPECT_TRUE(drawn({"NaN left out", {{1, 3}, {2, NAN}, {3, INFINITY}, {4, 2}}, {{2, NAN}}}) ==
              drawn({"NaN left out", {{1, 3}, {4, 2}}, {}}));
}

// Names of folders are bytes.
TEST(LossPlot, DrawsATitleThatIsNotUtf8) {
  EXPECT_TRUE(drawn({"caf\xe9", {{1, 2.5}}, {}}) == drawn({"caf\uFFFD", {{1, 2.5}}, {}}));
  EXPECT_TRUE(drawn({std::string(999, '\x80'), {{1, 2.5}}, {}}) != drawn({"", {{1, 2.5}}, {}}));
}

TEST(LossPlot, StaysSmallForLongRuns) {
  LossCurves curves = falling(1);
  for (int64_t i = 2; i <= 200000; ++i) curves.training.push_back({i, 1 + 1.0 / static_cast<double>(i)});
  EXPECT_LT(drawn(curves).size(), 400000u);
}

// The wheel has fonts for machines that have none.
TEST(Fonts, AreThoseBesideTheProgramIfTheSystemHasNone) {
  const TempFolder folder;
  const std::filesystem::path program = folder / "lib/fettle/fettle", own = folder / "lib/fettle/fonts/fonts.conf";
  const Environment none("FONTCONFIG_FILE", std::nullopt);
  const auto taken = [&] {
    use_own_fonts(program, folder.path());
    return std::string(std::getenv("FONTCONFIG_FILE") == nullptr ? "" : std::getenv("FONTCONFIG_FILE"));
  };
  EXPECT_EQ(taken(), "") << "the program is not of a wheel";
  write_text(own, "");
  EXPECT_EQ(taken(), own);
  {
    const Environment chosen("FONTCONFIG_FILE", "/my/fonts.conf");
    EXPECT_EQ(taken(), "/my/fonts.conf");
  }
  unsetenv("FONTCONFIG_FILE");
  write_text(folder / "etc/fonts/fonts.conf", "");
  EXPECT_EQ(taken(), "");
}

}  // namespace
}  // namespace fettle
