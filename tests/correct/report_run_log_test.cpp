// Tests what is read from trainer_log.jsonl while it grows, and how a long series is reduced to a few points.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "report/log_files.h"
#include "report/view/decimate.h"
#include "report/view/run_log.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr const char* kLog = "trainer_log.jsonl";

class RunLogFile : public testing::Test {
 protected:
  void append(const std::string& text) const { std::ofstream(folder / kLog, std::ios::binary | std::ios::app) << text; }
  bool update() { return log.update(files, kLog); }
  std::vector<double> values(const char* name) const {
    const auto found = log.series().find(name);
    return found == log.series().end() ? std::vector<double>{} : found->second.values;
  }

  TempFolder folder;
  FolderFiles files{folder.path()};
  RunLog log;
};

TEST_F(RunLogFile, HasTheFiguresThatARunWrites) {
  ProgressRecord record;
  record.current_steps = 100;
  record.total_steps = 300;
  record.loss = 1.5;
  record.lr = 5e-5;
  record.epoch = 0.25;
  record.elapsed_seconds = 90061;
  record.remaining_seconds = 83;
  record.throughput = 1234.5;
  record.total_tokens = 99;
  record.figures = {{"grad_norm", 0.5}, {"rewards/margins", -2}};
  append_progress(folder / kLog, {record});
  EXPECT_TRUE(update());
  EXPECT_FALSE(update()) << "nothing changed";
  ASSERT_THAT(log.rows(), SizeIs(1));
  EXPECT_EQ(log.rows()[0].at(LogAxis::kStep), 100);
  EXPECT_EQ(log.rows()[0].at(LogAxis::kSeconds), 90061);
  EXPECT_EQ(log.rows()[0].at(LogAxis::kTokens), 99);
  EXPECT_EQ(log.rows()[0].at(LogAxis::kEpoch), 0.25);
  EXPECT_EQ(log.total_steps(), 300);
  EXPECT_EQ(log.seconds_left(), 83);
  EXPECT_THAT(log.series(), UnorderedElementsAre(Key("loss"), Key("lr"), Key("throughput"), Key("grad_norm"),
                                                 Key("rewards/margins")));
  EXPECT_EQ(log.last("rewards/margins"), -2);
  EXPECT_EQ(log.last("eval_loss"), std::nullopt);
}

TEST_F(RunLogFile, WaitsForTheEndOfALine) {
  EXPECT_FALSE(update()) << "there is no file yet";
  append("{\"current_steps\": 1, \"loss\": 3}\n{\"current_steps\": 2, \"lo");
  EXPECT_TRUE(update());
  EXPECT_THAT(values("loss"), ElementsAre(3));
  append("ss\": 2}");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(3)) << "the line may still go on";
  append("\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(3, 2));
  EXPECT_EQ(log.damaged(), 0);
}

TEST_F(RunLogFile, CountsDamagedLinesAndReadsTheOthers) {
  append("{\"current_steps\": 1, \"loss\": 3}\n");
  const std::vector<std::string> damaged = {"{",
                                            "garbage",
                                            "[1, 2]",
                                            "{\"loss\": 5}",
                                            "{\"current_steps\": 2, \"loss\": 5} {",
                                            "{\"current_steps\": 2, \"loss\": [5]}",
                                            "{\"current_steps\": 2, \"loss\": }",
                                            "{\"current_steps\": 2 \"loss\": 5}",
                                            "{\"current_steps\": 2, \"loss\": 5,}",
                                            "{\"current_steps\": \"2\", \"loss\": 5}",
                                            "{\"current_steps\": 2, \"a\\u0062\": 5}",
                                            std::string("{\"current_steps\": 2, \"\0\": 5}", 28),
                                            "\xff\xfe{\"current_steps\": 2}"};
  for (const std::string& line : damaged) append(line + "\n");
  append("\n  \n{\"current_steps\": 4, \"loss\": 1, \"eval_loss\": null, \"good\": true}\r\n");
  update();
  EXPECT_EQ(log.damaged(), std::ssize(damaged));
  EXPECT_THAT(values("loss"), ElementsAre(3, 1));
  EXPECT_THAT(log.series(), UnorderedElementsAre(Key("loss")));
}

TEST_F(RunLogFile, LeavesOutValuesThatAreNotFinite) {
  append("{\"current_steps\": 1, \"loss\": NaN, \"lr\": 1}\n");
  append(
      "{\"current_steps\": 2, \"loss\": 1e999, \"lr\": 2}\n{\"current_steps\": 3, \"loss\": -Infinity, \"lr\": 3}\n");
  update();
  EXPECT_THAT(values("loss"), IsEmpty());
  EXPECT_THAT(values("lr"), ElementsAre(1, 2, 3));
  EXPECT_EQ(log.damaged(), 0);
}

TEST_F(RunLogFile, BeginsAgainWhenTheFileIsReplacedOrCut) {
  append("{\"current_steps\": 1, \"loss\": 3}\n{\"current_steps\": 2, \"loss\": 2}\n");
  update();
  cut_progress_after(folder / kLog, 1);
  EXPECT_TRUE(update());
  EXPECT_THAT(values("loss"), ElementsAre(3));
  std::filesystem::resize_file(folder / kLog, 0);
  EXPECT_TRUE(update());
  EXPECT_THAT(log.rows(), IsEmpty());
  append("{\"current_steps\": 9, \"loss\": 7}\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(7));
  std::filesystem::remove(folder / kLog);
  EXPECT_TRUE(update());
  EXPECT_THAT(log.rows(), IsEmpty());
}

// A process that continues a run counts its time from 0.
TEST_F(RunLogFile, AddsUpTheTimeOfTheProcesses) {
  for (const char* time : {"0:00:10", "0:00:20", "0:00:05", "1 day, 0:00:00", "0:00:01"}) {
    static int step = 0;
    append("{\"current_steps\": " + std::to_string(++step) + ", \"elapsed_time\": \"" + time + "\"}\n");
  }
  update();
  std::vector<double> seconds;
  for (const LogRow& row : log.rows()) seconds.push_back(row.seconds);
  EXPECT_THAT(seconds, ElementsAre(10, 20, 25, 20 + 86400, 20 + 86400 + 1));
}

// With few lines, the first line of a process may have a later time than the last line of the process before it.
TEST_F(RunLogFile, AddsUpTheTimeOfProcessesThatLogLate) {
  int64_t step = 0;
  for (const double time : {10, 10, 12}) {
    ProgressRecord record;
    record.current_steps = step + 500;
    record.elapsed_seconds = time;
    if (step > 0) record.resumed_step = step;
    append_progress(folder / kLog, {record});
    step = record.current_steps;
  }
  update();
  std::vector<double> seconds;
  for (const LogRow& row : log.rows()) seconds.push_back(row.seconds);
  EXPECT_THAT(seconds, ElementsAre(10, 20, 32));
  EXPECT_THAT(log.series(), IsEmpty());
}

// LLaMA-Factory keeps the lines of steps that a resumed run computes again.
// The process of a prediction counts its batches in the log of the training.
TEST_F(RunLogFile, KeepsTheCurveBesideLinesOfAPrediction) {
  append("{\"current_steps\": 10, \"loss\": 4, \"elapsed_time\": \"0:00:10\"}\n");
  append("{\"current_steps\": 20, \"loss\": 3, \"elapsed_time\": \"0:00:20\"}\n");
  append("{\"current_steps\": 5, \"total_steps\": 40, \"percentage\": 12.5, \"elapsed_time\": \"0:00:07\"}\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(4, 3));
  EXPECT_EQ(log.rows().back().step, 20);
}

// The first line after a resume may repeat the last step.
TEST_F(RunLogFile, HasTheLaterLineOfTheLastStep) {
  append("{\"current_steps\": 100, \"loss\": 3, \"elapsed_time\": \"0:01:40\"}\n");
  append("{\"current_steps\": 150, \"loss\": 2, \"elapsed_time\": \"0:02:30\"}\n");
  append("{\"current_steps\": 150, \"loss\": 1.9, \"elapsed_time\": \"0:00:50\"}\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(3, 1.9));
  EXPECT_EQ(log.rows().size(), 2u);
}

TEST_F(RunLogFile, HasTheLaterLineOfAStepThatIsThereTwice) {
  append("{\"current_steps\": 10, \"loss\": 4, \"total_tokens\": 100, \"elapsed_time\": \"0:00:10\"}\n");
  append("{\"current_steps\": 20, \"loss\": 3, \"total_tokens\": 200, \"elapsed_time\": \"0:00:20\"}\n");
  append("{\"current_steps\": 20, \"eval_loss\": 5}\n");
  append("{\"current_steps\": 30, \"loss\": 2, \"old\": 1, \"total_tokens\": 300, \"elapsed_time\": \"0:00:30\"}\n");
  append("{\"current_steps\": 30, \"eval_loss\": 6}\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(4, 3, 2));
  append("{\"current_steps\": 25, \"loss\": 2.5, \"elapsed_time\": \"0:00:40\"}\n");
  append("{\"current_steps\": 30, \"loss\": 1, \"elapsed_time\": \"0:00:45\"}\n");
  update();
  std::vector<double> steps, seconds, tokens;
  for (const LogRow& row : log.rows()) {
    steps.push_back(row.step);
    seconds.push_back(row.seconds);
    tokens.push_back(row.tokens);
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 20, 25, 30));
  EXPECT_THAT(seconds, ElementsAre(10, 20, 20, 70, 75)) << "both processes";
  EXPECT_THAT(tokens, ElementsAre(100, 200, 200, 200, 200)) << "not those of the removed rows";
  EXPECT_THAT(values("loss"), ElementsAre(4, 3, 2.5, 1));
  EXPECT_THAT(log.series().at("loss").rows, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(values("eval_loss"), ElementsAre(5));
  EXPECT_THAT(log.series(), UnorderedElementsAre(Key("loss"), Key("eval_loss")));
  RunLog last(RunLog::Keep::kLast);
  last.update(files, kLog);
  EXPECT_EQ(last.rows().back().seconds, 75);
  EXPECT_EQ(last.last("loss"), 1);
}

// Found by fuzzing: a time of "NaN" made all later times of the run NaN.
TEST_F(RunLogFile, ReadsADamagedTimeAsZero) {
  for (const char* time : {"0:00:10", "0:NaN00:00", "inf:00:00", "nan day, 0:00:01", "0:00:02"})
    append(std::string("{\"current_steps\": 1, \"elapsed_time\": \"") + time + "\"}\n");
  update();
  std::vector<double> seconds;
  for (const LogRow& row : log.rows()) seconds.push_back(row.seconds);
  EXPECT_THAT(seconds, ElementsAre(10, 10, 10, 10, 12));
}

TEST_F(RunLogFile, KeepsAtMostThreeHundredFigures) {
  std::string line = "{\"current_steps\": 1";
  for (int i = 0; i < 400; ++i) line += ", \"figure" + std::to_string(i) + "\": " + std::to_string(i);
  append(line + ", \"" + std::string(1000, 'x') + "\": 1}\n");
  update();
  EXPECT_THAT(log.series(), SizeIs(300));
  EXPECT_THAT(log.rows(), SizeIs(1));
}

TEST_F(RunLogFile, SkipsALineWithoutEnd) {
  append("{\"current_steps\": 1, \"loss\": 3}\n" + std::string(6 << 20, 'x') +
         "\n{\"current_steps\": 2, \"loss\": 2}\n");
  update();
  EXPECT_THAT(values("loss"), ElementsAre(3, 2));
  EXPECT_EQ(log.damaged(), 1);
}

constexpr int kLong = 1'000'000;

// The value of line 700,000 is much larger than all others, that of line 300,000 much smaller.
double long_value(int step) {
  return step == 700'000 ? 500.0 : step == 300'000 ? -500.0 : step % 7;
}

class LongLog : public RunLogFile {
 protected:
  LongLog() {
    std::ofstream out(folder / kLog, std::ios::binary);
    for (int step = 1; step <= kLong; ++step)
      out << "{\"current_steps\": " << step << ", \"total_steps\": 2000000, \"loss\": " << long_value(step) << "}\n";
  }
  // Overwrites the first bytes, so that a reader that begins again finds damaged lines.
  void damage_the_beginning() const {
    const int fd = ::open((folder / kLog).c_str(), O_WRONLY);
    const std::string text(1 << 20, '?');
    EXPECT_EQ(pwrite(fd, text.data(), text.size(), 0), std::ssize(text));
    close(fd);
  }
};

TEST_F(LongLog, IsReadOnce) {
  update();
  EXPECT_THAT(log.rows(), SizeIs(kLong));
  damage_the_beginning();
  append("{\"current_steps\": 1000001, \"loss\": 9}\n");
  EXPECT_TRUE(update());
  EXPECT_THAT(log.rows(), SizeIs(kLong + 1));
  EXPECT_EQ(log.damaged(), 0) << "lines that were read before were read again";
  EXPECT_EQ(log.last("loss"), 9);
}

TEST_F(LongLog, CanKeepOnlyTheLastValues) {
  RunLog last(RunLog::Keep::kLast);
  last.update(files, kLog);
  EXPECT_EQ(last.total_steps(), 2'000'000);
  damage_the_beginning();
  append("{\"current_steps\": 1000001, \"eval_loss\": 9}\n");
  last.update(files, kLog);
  ASSERT_THAT(last.rows(), SizeIs(1));
  EXPECT_EQ(last.rows()[0].step, kLong + 1);
  EXPECT_EQ(last.last("loss"), long_value(kLong));
  EXPECT_EQ(last.last("eval_loss"), 9);
  EXPECT_EQ(last.damaged(), 0);
  append("{\"current_steps\": 1000002, \"loss\": 4}\n");
  last.update(files, kLog);
  EXPECT_THAT(last.series().at("loss").values, ElementsAre(4));
  EXPECT_EQ(last.last("eval_loss"), 9);
}

TEST_F(LongLog, BecomesAFewPointsWithItsPeaks) {
  update();
  const Curve curve = decimate(log.rows(), log.series().at("loss"), LogAxis::kStep, 500);
  EXPECT_EQ(curve.values, kLong);
  for (const auto& list : {curve.x, curve.steps, curve.mean, curve.low, curve.high}) EXPECT_THAT(list, SizeIs(500));
  EXPECT_THAT(curve.counts, SizeIs(500));
  EXPECT_EQ(*std::ranges::max_element(curve.high), 500);
  EXPECT_EQ(*std::ranges::min_element(curve.low), -500);
  EXPECT_EQ(curve.x.back(), kLong);
  int64_t counted = 0;
  double sum = 0;
  for (size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(curve.counts[i], 2000);
    EXPECT_TRUE(curve.low[i] <= curve.mean[i] && curve.mean[i] <= curve.high[i]) << i;
    counted += curve.counts[i];
    sum += curve.mean[i] * static_cast<double>(curve.counts[i]);
  }
  EXPECT_EQ(counted, kLong);
  double whole = 0;
  for (int step = 1; step <= kLong; ++step) whole += long_value(step);
  EXPECT_NEAR(sum, whole, 1e-6 * whole);
}

TEST_F(LongLog, ShowsARangeInFull) {
  update();
  const Curve curve =
      decimate(log.rows(), log.series().at("loss"), LogAxis::kStep, 500, {.from = 699'999, .to = 700'001});
  EXPECT_THAT(curve.x, ElementsAre(699'999, 700'000, 700'001));
  EXPECT_THAT(curve.mean, ElementsAre(long_value(699'999), 500, long_value(700'001)));
  EXPECT_THAT(curve.low, IsEmpty()) << "each point is one value";
  EXPECT_EQ(curve.values, 3);
}

// The size of such a file of the kernel is that of a page. So reading ends early, as it does when a disk fails.
TEST(RunLog, IsReadAgainAfterAPartCouldNotBeRead) {
  const std::filesystem::path folder = "/sys/kernel";
  const FolderFiles files(folder);
  const char* name = "uevent_seqnum";
  const auto file = files.open(name);
  if (!file || std::ssize(file->read(0, file->stamp().size)) >= file->stamp().size)
    GTEST_SKIP() << (folder / name) << " is missing, or has its true size";
  RunLog log;
  EXPECT_TRUE(log.update(files, name));
  EXPECT_TRUE(log.update(files, name));
  EXPECT_NE(log.stamp(), file->stamp());
}

TEST(Decimate, TakesAnyNumberOfValuesAndPoints) {
  for (const int64_t count : {0, 1, 2, 3, 7, 10, 11, 99}) {
    std::vector<LogRow> rows;
    LogSeries series;
    for (int64_t i = 0; i < count; ++i) {
      rows.push_back({.step = static_cast<double>(i)});
      series.rows.push_back(static_cast<uint32_t>(i));
      series.values.push_back(static_cast<double>(i * i));
    }
    for (const int64_t points : {-5, 0, 1, 2, 3, 10, 1000}) {
      const Curve curve = decimate(rows, series, LogAxis::kStep, points);
      const auto wanted = static_cast<size_t>(std::min(count, std::max<int64_t>(1, points)));
      EXPECT_THAT(curve.x, SizeIs(wanted)) << count << " values, " << points << " points";
      EXPECT_EQ(curve.values, count);
      if (count > 0) {
        EXPECT_EQ(curve.x.back(), count - 1);
      }
    }
    EXPECT_THAT(decimate(rows, series, LogAxis::kStep, 5, {.from = 8, .to = 2}).x, IsEmpty());
    EXPECT_THAT(decimate(rows, series, LogAxis::kStep, 5, {.from = 1e9}).x, IsEmpty());
  }
}

// A program that continues a run may count tokens from 0 again.
TEST(Decimate, ARangeHasAllItsValuesIfTokensGoBack) {
  std::vector<LogRow> rows;
  LogSeries series;
  for (const double tokens : {1, 2, 3, 4, 5, 2, 3, 4, 5, 6}) {
    series.rows.push_back(static_cast<uint32_t>(rows.size()));
    series.values.push_back(tokens * tokens);
    rows.push_back({.step = static_cast<double>(rows.size()), .tokens = tokens});
  }
  const Curve curve = decimate(rows, series, LogAxis::kTokens, 500, {.from = 2, .to = 3});
  EXPECT_THAT(curve.x, ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(curve.mean, ElementsAre(4, 9, 4, 9));
}

}  // namespace
}  // namespace fettle
