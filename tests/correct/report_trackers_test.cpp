// Tests that metrics reach trackers in order, and that a tracker that fails or hangs never disturbs the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/seconds_since.h"
#include "environment.h"
#include "report/trackers/trackers.h"

namespace fettle {
namespace {

using testing::ElementsAre;

// The calls that the fake tracker received, and how it behaves.
struct Told {
  std::mutex mutex;
  std::vector<int64_t> steps;
  std::vector<bool> ends;
  std::atomic<int> failures = 0;    // number of log() calls that fail before one succeeds
  std::atomic<bool> hangs = false;  // log() does not return while set
};
Told& told() {
  static Told one;
  return one;
}

class FakeTracker : public Tracker {
 public:
  void log(const TrackedFigures& figures) override {
    while (told().hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (told().failures-- > 0) throw UserError("the disk is full");
    const std::lock_guard lock(told().mutex);
    told().steps.push_back(figures.step);
  }
  void finish(bool succeeded) override { told().ends.push_back(succeeded); }
};

std::vector<TrackerRow> fake_rows() {
  return {{"fake", [](const TrackedRun&) -> std::unique_ptr<Tracker> { return std::make_unique<FakeTracker>(); }},
          {"broken", [](const TrackedRun&) -> std::unique_ptr<Tracker> { throw UserError("no such server"); }}};
}

class TrackersTest : public testing::Test {
 protected:
  void SetUp() override {
    told().steps.clear();
    told().ends.clear();
    told().failures = 0;
  }
};

TEST_F(TrackersTest, NamesAreThoseOfTheTrainer) {
  EXPECT_EQ(tracked_names({{"loss", 1}, {"eval_loss", 2}, {"rewards/chosen", 3}}),
            (std::map<std::string, double>{{"train/loss", 1}, {"eval/loss", 2}, {"train/rewards/chosen", 3}}));
}

TEST_F(TrackersTest, EverythingIsWrittenInOrder) {
  Trackers trackers({"fake"}, {}, fake_rows());
  for (int64_t step = 1; step <= 100; ++step) trackers.log(step, {{"loss", 0.5}});
  trackers.finish();
  ASSERT_EQ(told().steps.size(), 100);
  for (int64_t step = 1; step <= 100; ++step) EXPECT_EQ(told().steps[step - 1], step);
  EXPECT_THAT(told().ends, ElementsAre(true));
}

TEST_F(TrackersTest, FailedFiguresAreWrittenLater) {
  told().failures = 3;
  Trackers trackers({"fake"}, {}, fake_rows());
  for (int64_t step = 1; step <= 9; ++step) trackers.log(step, {{"loss", 0.5}});
  for (int64_t step = 10; step <= 12; ++step) {
    trackers.log(step, {{"loss", 0.5}});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  trackers.finish();
  EXPECT_THAT(told().steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
}

TEST_F(TrackersTest, OneThatCannotBeOpenedLeavesTheOthers) {
  Trackers trackers({"broken", "fake"}, {}, fake_rows());
  trackers.log(1, {{"loss", 0.5}});
  trackers.finish();
  EXPECT_THAT(told().steps, ElementsAre(1));
}

TEST_F(TrackersTest, OneThatHangsDelaysOnlyTheEnd) {
  told().hangs = true;
  const auto start = Clock::now();
  {
    Trackers trackers({"fake"}, {}, fake_rows());
    for (int64_t step = 1; step <= 1000; ++step) trackers.log(step, {{"loss", 0.5}});
    EXPECT_LT(seconds_since(start), 5);
    trackers.finish(true, 0.05);
  }
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_TRUE(told().steps.empty());
  told().hangs = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // time for the abandoned thread to end
}

TEST_F(TrackersTest, ARunThatEndsByAnErrorHasFailed) {
  { Trackers trackers({"fake"}, {}, fake_rows()); }
  EXPECT_THAT(told().ends, ElementsAre(false));
}

TEST_F(TrackersTest, MlflowNeedsTheAddressOfAServer) {
  for (const char* address : {"", "mlruns", "sqlite:///mlflow.db", "databricks"}) {
    const Environment set("MLFLOW_TRACKING_URI", address);
    EXPECT_THAT([] { open_mlflow({}); }, testing::ThrowsMessage<UserError>(testing::AllOf(
                                             testing::HasSubstr("start one with `mlflow server`"),
                                             testing::HasSubstr(*address == '\0' ? "not set" : address))));
  }
}

// The first request to the server is sent when figures are written. So a server that is down does not disturb the
// start.
TEST_F(TrackersTest, MlflowKeepsFiguresWhileItsServerIsDown) {
  const Environment set("MLFLOW_TRACKING_URI", "http://127.0.0.1:9");
  const std::unique_ptr<Tracker> tracker = open_mlflow({});
  tracker->log({1, 0, {{"train/loss", std::nan("")}}});
  EXPECT_THROW(tracker->flush(), UserError);
}

TEST_F(TrackersTest, EveryTrackerOfTheTableHasAName) {
  for (const TrackerRow& row : tracker_rows()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_NE(row.open, nullptr);
  }
}

}  // namespace
}  // namespace fettle
