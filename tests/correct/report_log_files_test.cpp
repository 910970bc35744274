#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "report/log_files.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
const fs::path kRecorded = source_folder() / "tests/reference/checkpoint/trainer_state.json";

TEST(TrainerStateFile, HasTheBytesThatTheTrainerWrites) {
  TempFolder folder;
  const TrainerState state = read_trainer_state(kRecorded);
  EXPECT_EQ(state.global_step, 20);
  EXPECT_EQ(state.train_batch_size, 2);
  ASSERT_EQ(state.log_history.size(), 3u);
  EXPECT_EQ(state.log_history[1].values.at("learning_rate"), 5e-5);
  EXPECT_EQ(state.best_metric, 1.25);
  write_trainer_state(folder / "trainer_state.json", state);
  EXPECT_EQ(read_text(folder / "trainer_state.json"), read_text(kRecorded));
}

TEST(TrainerStateFile, DefaultsAreNull) {
  const nlohmann::json fields = nlohmann::json::parse(to_json(TrainerState{}));
  EXPECT_TRUE(fields.at("best_metric").is_null());
  EXPECT_TRUE(fields.at("best_global_step").is_null());
  EXPECT_TRUE(fields.at("best_model_checkpoint").is_null());
  EXPECT_EQ(fields.at("log_history"), nlohmann::json::array());
}

TEST(TrainerStateFile, ValuesThatJsonDoesNotHaveAreLeftOut) {
  TrainerState state;
  state.log_history.push_back({3, 0.5, {{"loss", 2}, {"grad_norm", std::numeric_limits<double>::quiet_NaN()}}});
  const nlohmann::json row = nlohmann::json::parse(to_json(state)).at("log_history").at(0);
  EXPECT_EQ(row, (nlohmann::json{{"step", 3}, {"epoch", 0.5}, {"loss", 2.0}}));
}

ProgressRecord progress(int64_t step) {
  ProgressRecord record;
  record.current_steps = step;
  record.total_steps = 300;
  record.loss = 1.5;
  return record;
}

TEST(ProgressFile, LineHasTheFieldsInOrder) {
  ProgressRecord record = progress(100);
  record.eval_loss = std::numeric_limits<double>::infinity();
  record.lr = 5e-5;
  record.epoch = 0.25;
  record.elapsed_seconds = 83.9;
  record.remaining_seconds = 90061;
  record.throughput = 1234.5678;
  record.total_tokens = 99;
  record.resumed_step = 50;
  EXPECT_EQ(to_json_line(record),
            R"({"current_steps":100,"total_steps":300,"loss":1.5,"lr":5e-05,"epoch":0.25,"percentage":33.33,)"
            R"("elapsed_time":"0:01:23","remaining_time":"1 day, 1:01:01","throughput":1234.57,"total_tokens":99,)"
            R"("resumed_step":50})");
}

TEST(ProgressFile, DurationsReadAsPythonPrintsThem) {
  EXPECT_EQ(format_duration(0), "0:00:00");
  EXPECT_EQ(format_duration(-5), "0:00:00");
  EXPECT_EQ(format_duration(3599.999), "0:59:59");
  EXPECT_EQ(format_duration(86400 * 2 + 36000), "2 days, 10:00:00");
}

TEST(ProgressFile, IsContinuedAfterAResume) {
  TempFolder folder;
  const fs::path file = folder / "trainer_log.jsonl";
  cut_progress_after(file, 10);
  EXPECT_FALSE(fs::exists(file));
  for (int64_t step : {10, 20, 30}) append_progress(file, {progress(step)});
  const std::string until_20 = to_json_line(progress(10)) + "\n" + to_json_line(progress(20)) + "\n";
  write_text(file, read_text(file) + R"({"current_steps":15,"lo)");
  cut_progress_after(file, 20);
  EXPECT_EQ(read_text(file), until_20);
  append_progress(file, {progress(30)});
  EXPECT_EQ(read_text(file), until_20 + to_json_line(progress(30)) + "\n");
}

TEST(Results, AreKeptBySplitAndAllTogether) {
  TempFolder folder;
  write_results(folder.path(), "train", {{"train_loss", 1.5}, {"epoch", 3}});
  write_results(folder.path(), "eval", {{"eval_loss", 2.5}, {"epoch", 4}});
  EXPECT_EQ(read_text(folder / "train_results.json"), "{\n    \"epoch\": 3.0,\n    \"train_loss\": 1.5\n}\n");
  EXPECT_EQ(read_text(folder / "all_results.json"),
            "{\n    \"epoch\": 4.0,\n    \"eval_loss\": 2.5,\n    \"train_loss\": 1.5\n}\n");
}

}  // namespace
}  // namespace fettle
