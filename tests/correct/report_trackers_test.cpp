// Tests that metrics reach trackers in order, and that a tracker that fails or hangs never disturbs the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <wandb_record.pb.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "base/seconds_since.h"
#include "environment.h"
#include "hub_server.h"
#include "report/trackers/trackers.h"
#include "report/trackers/wandb_file.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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

TEST_F(TrackersTest, MlflowDoesNotShowThePasswordOfItsAddress) {
  const Environment set("MLFLOW_TRACKING_URI", "postgresql://me:secret@db/mlflow");
  EXPECT_THAT(user_error([] { open_mlflow({}); }),
              AllOf(HasSubstr("postgresql://***@db/mlflow"), Not(HasSubstr("secret"))));
}

// The first request to the server is sent when figures are written. So a server that is down does not disturb the
// start.
TEST_F(TrackersTest, MlflowKeepsFiguresWhileItsServerIsDown) {
  const Environment set("MLFLOW_TRACKING_URI", "http://127.0.0.1:9");
  const std::unique_ptr<Tracker> tracker = open_mlflow({});
  tracker->log({1, 0, {{"loss", std::nan("")}}});
  EXPECT_THROW(tracker->flush(), UserError);
}

// An MLflow server on this machine.
class MlflowServer : public HubServer {
 public:
  // Writes one figure to the server, again until that succeeds.
  void track(int64_t resumed_step = 0) {
    const auto tracker = open_mlflow({.id = "abcd1234", .resumed_step = resumed_step, .config = {{"cutoff_len", 64}}});
    tracker->log({1, 0, {{"loss", 0.5}, {"eval_loss", 0.25}}});
    while (user_error([&] { tracker->flush(); }) != "no error") ++failures;
  }
  // Returns the ids of the runs that got the recipe's keys.
  std::vector<std::string> runs_with_params() const {
    std::vector<std::string> out;
    std::ifstream file(path() / "mlflow.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto asked = nlohmann::json::parse(line); asked.contains("params")) {
        EXPECT_EQ(asked["params"][0]["value"], "64");
        out.push_back(asked["run_id"]);
      }
    return out;
  }
  // Returns the names of all figures, in the order of their arrival.
  std::vector<std::string> figures() const {
    std::vector<std::string> out;
    std::ifstream file(path() / "mlflow.jsonl");
    for (std::string line; std::getline(file, line);)
      for (const auto& one : nlohmann::json::parse(line).value("metrics", nlohmann::json::array()))
        out.push_back(one["key"]);
    return out;
  }
  int failures = 0;  // of writing

 private:
  Environment address_{"MLFLOW_TRACKING_URI", endpoint()}, token_{"MLFLOW_TRACKING_TOKEN", "good"},
      experiment_{"MLFLOW_EXPERIMENT_ID", "1"}, user_{"MLFLOW_TRACKING_USERNAME", std::nullopt};
};

TEST_F(TrackersTest, MlflowGetsTheRecipeWhenItsServerComesBack) {
  MlflowServer server;
  server.set_faults({{{"kind", "status"}, {"status", 503}, {"match", "runs/log-batch"}}});
  server.track();
  EXPECT_EQ(server.failures, 1);
  EXPECT_THAT(server.runs_with_params(), ElementsAre("r1"));
  server.track(1);
  EXPECT_THAT(server.runs_with_params(), ElementsAre("r1")) << "a resumed run has its configuration";
}

TEST_F(TrackersTest, MlflowGetsTheNamesOfTrainerState) {
  MlflowServer server;
  server.track();
  server.track(1);
  EXPECT_THAT(server.figures(), ElementsAre("eval_loss", "loss", "eval_loss", "loss"));
}

TEST_F(TrackersTest, MlflowKeepsTheNamesOfAnOlderFettleInAResumedRun) {
  MlflowServer server;
  write_text(server.path() / "mlflow.jsonl",
             R"({"function": "runs/create"})"
             "\n"
             R"({"function": "runs/log-batch", "metrics": [{"key": "train/epoch"}, {"key": "train/loss"}]})"
             "\n");
  server.track(1);
  EXPECT_THAT(server.figures(), ElementsAre("train/epoch", "train/loss", "eval/loss", "train/loss"));
}

TEST_F(TrackersTest, MlflowGetsTheRecipeForTheRunOfItsVariable) {
  MlflowServer server;
  const Environment run("MLFLOW_RUN_ID", "r7");
  server.track();
  EXPECT_THAT(server.runs_with_params(), ElementsAre("r7"));
  server.set_faults({{{"kind", "status"},
                      {"status", 400},
                      {"match", "runs/log-batch"},
                      {"body", R"({"message": "cutoff_len is 32"})"}}});
  testing::internal::CaptureStderr();
  server.track();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("refuses a part of the run's configuration: cutoff_len is 32"));
  EXPECT_EQ(server.failures, 0);
}

// Returns the steps of the records in the only offline run of `folder`, in the order of the file.
std::vector<int64_t> steps_for_wandb(const std::filesystem::path& folder) {
  std::vector<int64_t> steps;
  int64_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "wandb")) {
    ++runs;
    for (const std::string& bytes : read_wandb_file(entry.path() / "run-abcd1234.wandb").records) {
      wandb::Record record;
      EXPECT_TRUE(record.ParseFromString(bytes));
      if (record.has_run()) {
        EXPECT_FALSE(record.run().resumed());
      }
      if (record.has_history()) steps.push_back(record.history().step().num());
    }
  }
  EXPECT_EQ(runs, 1);
  return steps;
}

TEST_F(TrackersTest, WandbHasOneOfflineRunAfterResumes) {
  const TempFolder folder;
  const Environment set("WANDB_DIR", "");
  const auto train = [&](int64_t from, int64_t to) {
    const auto tracker = open_wandb({.id = "abcd1234", .name = "n", .folder = folder.path(), .resumed_step = from});
    for (int64_t step = from + 1; step <= to; ++step) tracker->log({step, 1.5, {{"loss", 0.25}}});
    tracker->finish(true);
  };
  train(0, 5);
  train(3, 6);
  EXPECT_THAT(steps_for_wandb(folder.path()), ElementsAre(1, 2, 3, 4, 5, 6));
  train(2, 4);
  EXPECT_THAT(steps_for_wandb(folder.path()), ElementsAre(1, 2, 3, 4));
}

// Someone may sync and remove an offline run before the run is resumed, or WANDB_DIR may be on another machine.
TEST_F(TrackersTest, WandbHasTheFiguresOfAnOfflineRunThatWasRemoved) {
  const TempFolder folder;
  const Environment set("WANDB_DIR", "");
  const auto train = [&](int64_t from, int64_t to, const std::vector<TrackedFigures>& earlier) {
    testing::internal::CaptureStderr();
    const auto tracker =
        open_wandb({.id = "abcd1234", .name = "n", .folder = folder.path(), .resumed_step = from, .earlier = earlier});
    for (int64_t step = from + 1; step <= to; ++step) tracker->log({step, 1.5, {{"loss", 0.25}}});
    tracker->finish(true);
    return testing::internal::GetCapturedStderr();
  };
  const std::vector<TrackedFigures> earlier{
      {1, 0, {{"loss", 0.25}}}, {2, 0, {{"loss", 0.25}}}, {2, 0, {{"eval_loss", 0.5}}}, {3, 0, {{"loss", 0.25}}}};
  train(0, 5, {});
  std::filesystem::remove_all(folder / "wandb");
  EXPECT_THAT(train(3, 6, earlier), HasSubstr("have 0 of the 4 records up to step 3"));
  EXPECT_THAT(steps_for_wandb(folder.path()), ElementsAre(1, 2, 2, 3, 4, 5, 6));
  EXPECT_EQ(train(3, 4, earlier), "") << "the offline run has all figures";
  EXPECT_THAT(steps_for_wandb(folder.path()), ElementsAre(1, 2, 2, 3, 4));
}

TEST_F(TrackersTest, WandbKeepsAnOfflineRunThatCannotBeRead) {
  const TempFolder folder;
  const Environment set("WANDB_DIR", "");
  open_wandb({.id = "abcd1234", .name = "n", .folder = folder.path()})->finish(true);
  const auto first = std::filesystem::directory_iterator(folder / "wandb")->path() / "run-abcd1234.wandb";
  std::string bytes = read_text(first);
  bytes[bytes.size() / 2] ^= 1;
  write_text(first, bytes);
  open_wandb({.id = "abcd1234", .name = "n", .folder = folder.path(), .resumed_step = 1})->finish(true);
  EXPECT_EQ(read_text(first), bytes);
}

// Returns the record of the run in the only offline run of `folder`.
wandb::Run run_for_wandb(const std::filesystem::path& folder) {
  const auto at = std::filesystem::directory_iterator(folder / "wandb")->path();
  wandb::Record record;
  EXPECT_TRUE(record.ParseFromString(read_wandb_file(at / "run-abcd1234.wandb").records.at(1)));
  return record.run();
}

TEST_F(TrackersTest, WandbGetsAProjectThatItAllows) {
  const Environment dir("WANDB_DIR", ""), project("WANDB_PROJECT", "");
  std::string letters;
  for (int i = 0; i < 128; ++i) letters += "\u00e9";
  for (const auto& [wanted, allowed] : {std::pair<std::string, std::string>{"support-bot_2.0", "support-bot_2.0"},
                                        {"a/b\\c#d?e%f:g", "a-b-c-d-e-f-g"},
                                        {letters, letters},
                                        {letters + "x", letters}}) {
    const TempFolder folder;
    testing::internal::CaptureStderr();
    open_wandb({.id = "abcd1234", .name = "n", .project = wanted, .folder = folder.path()})->finish(true);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(run_for_wandb(folder.path()).project(), allowed);
    if (wanted == allowed) {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_THAT(said, AllOf(HasSubstr("'" + wanted + "'"), HasSubstr("'" + allowed + "'")));
    }
  }
}

// W&B's variables name what the recipe does not set.
TEST_F(TrackersTest, WandbTakesNamesFromItsVariables) {
  const Environment dir("WANDB_DIR", ""), project("WANDB_PROJECT", "support"), name("WANDB_NAME", "second try"),
      entity("WANDB_ENTITY", "team");
  for (const bool set : {false, true}) {
    const TempFolder folder;
    TrackedRun run{.id = "abcd1234", .name = "n", .project = "p", .folder = folder.path()};
    if (set) run.config = {{"project", "p"}, {"run_name", "n"}};
    open_wandb(run)->finish(true);
    const wandb::Run written = run_for_wandb(folder.path());
    EXPECT_EQ(written.entity(), "team");
    EXPECT_EQ(written.project(), set ? "p" : "support");
    EXPECT_EQ(written.display_name(), set ? "n" : "second try");
  }
}

// Linux allows any bytes in the name of output_dir.
TEST_F(TrackersTest, NamesThatAreNotUtf8AreMadeUtf8) {
  const Environment dir("WANDB_DIR", ""), project("WANDB_PROJECT", "sup\xffport"), name("WANDB_NAME", "");
  const TempFolder folder;
  Trackers({"wandb"}, {.id = "abcd1234", .name = "caf\xe9", .project = "p", .folder = folder.path()}).finish();
  const wandb::Run run = run_for_wandb(folder.path());
  EXPECT_EQ(run.display_name(), "caf\ufffd");
  EXPECT_EQ(run.project(), "sup\ufffdport");
}

// trackio adds the column run_id when it opens the database. Fettle leaves the database as it is.
TEST_F(TrackersTest, ADatabaseOfAnOlderTrackioIsNamed) {
  const TempFolder folder;
  const Environment place("TRACKIO_DIR", folder.path().string());
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder / "p.db").c_str(), &database), SQLITE_OK);
  const char* old =
      "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, "
      "step INTEGER NOT NULL, metrics TEXT NOT NULL)";
  ASSERT_EQ(sqlite3_exec(database, old, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const std::string before = read_text(folder / "p.db");
  EXPECT_THAT(user_error([] { open_trackio({.id = "abcd1234", .name = "n", .project = "p"}); }),
              AllOf(HasSubstr("p.db: this database is from an older trackio"), HasSubstr("another `project`"),
                    Not(HasSubstr("TRACKIO_DIR"))));
  EXPECT_EQ(read_text(folder / "p.db"), before);
}

// trackio keeps what Python's isalnum accepts, and - and _.
TEST_F(TrackersTest, TrackioNamesItsFileAfterTheProject) {
  const TempFolder folder;
  const Environment place("TRACKIO_DIR", folder.path().string());
  for (const auto& [project, file] : {std::pair{"\u5ba2\u670d", "\u5ba2\u670d.db"},
                                      {"caf\u00e9 1/2", "caf\u00e912.db"},
                                      {"a-b_c.d", "a-b_cd.db"},
                                      {"\u2026", "default.db"}}) {
    open_trackio({.id = "abcd1234", .name = "n", .project = project});
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << project;
  }
}

TEST_F(TrackersTest, TrackioNamesItsFolderOnlyWhenItCannotBeWritten) {
  const TempFolder folder;
  const Environment place("TRACKIO_DIR", (folder / "file").string());
  const auto error = [] { return user_error([] { open_trackio({.id = "abcd1234", .name = "n", .project = "p"}); }); };
  write_text(folder / "file", "this is no folder");
  EXPECT_THAT(error(), HasSubstr("set TRACKIO_DIR to a folder that can be written"));
  std::filesystem::remove(folder / "file");
  write_text(folder / "file/p.db", std::string(5000, 'x'));
  EXPECT_THAT(error(), AllOf(HasSubstr("not a database"), Not(HasSubstr("TRACKIO_DIR"))));
}

TEST(WandbFiles, HaveTheRecordsThatWereAppended) {
  const TempFolder folder;
  std::vector<std::string> wanted;
  for (const size_t size : {0, 1, 100, 32747, 5, 32768, 100000, 7})
    wanted.emplace_back(size, static_cast<char>('a' + wanted.size()));
  {
    WandbFile file(folder / "whole");
    for (const std::string& record : wanted) file.append(record);
  }
  EXPECT_EQ(read_wandb_file(folder / "whole").records, wanted);
  EXPECT_TRUE(read_wandb_file(folder / "whole").whole);
  std::string bytes = read_text(folder / "whole");
  bytes.pop_back();  // the last record is incomplete
  wanted.pop_back();
  write_text(folder / "cut", bytes);
  EXPECT_EQ(read_wandb_file(folder / "cut").records, wanted);
  EXPECT_FALSE(read_wandb_file(folder / "cut").whole);
  write_text(folder / "cut", bytes.substr(0, 7 + 7 + 0 + 7 + 1 + 7 + 100 + 7 + 32747 - 1000));
  EXPECT_FALSE(read_wandb_file(folder / "cut").whole);
  bytes[50] ^= 1;  // damages the third record
  write_text(folder / "damaged", bytes);
  EXPECT_EQ(read_wandb_file(folder / "damaged").records.size(), 2);
  EXPECT_FALSE(read_wandb_file(folder / "damaged").whole);
  EXPECT_FALSE(read_wandb_file(folder / "none").whole);
}

TEST_F(TrackersTest, EveryTrackerOfTheTableHasAName) {
  for (const TrackerRow& row : tracker_rows()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_NE(row.open, nullptr);
  }
}

}  // namespace
}  // namespace fettle
