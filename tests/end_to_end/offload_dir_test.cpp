// Tests runs of the program with offload_dir: what they print and leave behind, kills, and disks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "environment.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<std::string> words(const fs::path& output, const fs::path& disk) {
  return with(train_words(output), {"finetuning_type=full", "learning_rate=0.0005", "save_strategy=steps",
                                    "save_steps=1", "save_total_limit=2", "plot_loss=false", "max_steps=12",
                                    "resume_from_checkpoint=true", "offload_dir=" + disk.string()});
}

void expect_kills_change_nothing(const std::vector<std::string>& more) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const TempFolder folder(program_file().parent_path());
  const fs::path disk = folder / "disk", whole = folder / "whole", cut = folder / "cut";
  const Outcome unbroken = run_fettle(folder, with(words(whole, disk), more));
  ASSERT_EQ(unbroken.code, 0) << unbroken.err;
  EXPECT_THAT(unbroken.err, AllOf(HasSubstr("on the disk of offload_dir"), HasSubstr("offload_dir: " + disk.string()),
                                  HasSubstr("s of updates")));
  int kills = 0;
  for (Outcome outcome{.code = 1}; outcome.code != 0;) {
    Running running(folder.path(), with(words(cut, disk), more));
    const auto newest = newest_checkpoint(cut);
    const int64_t next = (newest ? newest->step : 0) + 1 + random() % 3;
    if (kills < 5) {
      wait_until([&] { return running.ended() || fs::exists(checkpoint_path(cut, next)); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      running.send(SIGKILL);
    }
    outcome = running.wait();
    if (outcome.code == 0) break;
    ASSERT_EQ(outcome.code, 128 + SIGKILL) << outcome.err;
    ++kills;
    for (const CheckpointFolder& checkpoint : list_checkpoints(cut))
      ASSERT_EQ(user_error([&] { StateReader(state_folder(checkpoint.path)).verify(); }), "no error");
    EXPECT_TRUE(fs::is_empty(disk));
  }
  EXPECT_GT(kills, 0);
  EXPECT_THAT(logged_losses(cut), ElementsAreArray(logged_losses(whole)));
  EXPECT_EQ(read_text(cut / "model.safetensors"), read_text(whole / "model.safetensors"));
  EXPECT_TRUE(fs::is_empty(disk));
}

TEST(OffloadDir, KilledRunsResumeBitIdenticallyAndLeaveNothing) {
  expect_kills_change_nothing({});
}

TEST(OffloadDir, KilledRunsWithWeightsOnTheDiskResumeBitIdentically) {
  expect_kills_change_nothing({"bf16=true", "offload_dir_weights=true"});
}

TEST(OffloadDir, AFullDiskEndsTheRun) {
  const TempFolder folder(program_file().parent_path());
  const fs::path disk = folder / "disk", output = folder / "out";
  ASSERT_EQ(run_fettle(folder, with(words(output, disk), {"max_steps=2"})).code, 0);
  Outcome outcome;
  {
    const Environment engine("FETTLE_DISK_IO", "pread"), library("LD_PRELOAD", FETTLE_FAULTS),
        call("FAULT_CALL", "write"), path("FAULT_PATH", disk.string()), how("FAULT_ERRNO", "ENOSPC"),
        nth("FAULT_NTH", "40"), count("FAULT_COUNT", "all");
    outcome = run_fettle(folder, with(words(output, disk), {"max_steps=30"}));
  }
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("offload_dir: " + disk.string()), HasSubstr("No space left on device"),
                                 HasSubstr("free some space")));
  const auto newest = newest_checkpoint(output);
  ASSERT_TRUE(newest && newest->complete);
  EXPECT_EQ(run_fettle(folder, with(words(output, disk), {"max_steps=" + std::to_string(newest->step + 1)})).code, 0);
}

TEST(OffloadDir, SigintSavesAndLeavesNothing) {
  const TempFolder folder(program_file().parent_path());
  const fs::path disk = folder / "disk", output = folder / "out";
  Running running(folder.path(), with(words(output, disk), {"max_steps=100000"}));
  ASSERT_TRUE(wait_until([&] { return fs::exists(checkpoint_path(output, 2)); }));
  running.send(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
  EXPECT_TRUE(fs::is_empty(disk));
}

TEST(OffloadDir, PlanShowsTheDisk) {
  const TempFolder folder(program_file().parent_path());
  std::vector<std::string> with_disk = words(folder / "out", folder / "disk"), without = with_disk;
  with_disk[0] = without[0] = "plan";
  without.back() = "offload_dir=";
  auto planned = [&](std::vector<std::string> plan) {
    plan.push_back("--json");
    const Outcome outcome = run_fettle(folder, plan);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("per_device");
  };
  const nlohmann::json on_disk = planned(with_disk), on_device = planned(without);
  EXPECT_GT(on_device.at("optimizer_bytes"), 0);
  EXPECT_EQ(on_disk.at("optimizer_bytes"), 0);
  EXPECT_GE(on_disk.at("disk_bytes"), on_device.at("optimizer_bytes"));
  EXPECT_EQ(on_device.at("disk_bytes"), 0);
  // The file has 4 bytes for each element of the matrices. The device keeps 2 bytes for it instead of 4.
  const nlohmann::json state = planned(with(with_disk, {"bf16=true"})),
                       weights = planned(with(with_disk, {"bf16=true", "offload_dir_weights=true"}));
  const int64_t moved = state.at("trained_bytes").get<int64_t>() - weights.at("trained_bytes").get<int64_t>();
  EXPECT_GT(moved, 0);
  EXPECT_EQ(weights.at("disk_bytes").get<int64_t>() - state.at("disk_bytes").get<int64_t>(), 2 * moved);
  EXPECT_LT(weights.at("peak_bytes"), state.at("peak_bytes"));
  EXPECT_FALSE(fs::exists(folder / "disk"));
}

}  // namespace
}  // namespace fettle
