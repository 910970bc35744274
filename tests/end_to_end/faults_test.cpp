// Tests system calls that fail while a run writes a log line, a checkpoint or the result, and a clock that passes
// midnight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/saved/checkpoint_list.h"
#include "environment.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> words(const fs::path& output) {
  return with(train_words(output), {"save_strategy=steps", "save_steps=2", "plot_loss=false"});
}

// As long as this object exists, the chosen calls of all runs fail (tests/faults/faults.cpp).
struct Faults {
  Faults(const std::string& call, const std::string& path, const std::string& how, const std::string& nth = "1",
         const std::string& count = "1")
      : call{"FAULT_CALL", call},
        path{"FAULT_PATH", path},
        how{"FAULT_ERRNO", how},
        nth{"FAULT_NTH", nth},
        count{"FAULT_COUNT", count} {}
  Environment library{"LD_PRELOAD", FETTLE_FAULTS};
  Environment call, path, how, nth, count;
};

bool is_complete(const fs::path& output, int64_t step) {
  for (const CheckpointFolder& one : list_checkpoints(output))
    if (one.step == step) return one.complete;
  return false;
}

// Two runs use one output_dir. The second run is refused, and the message names the first run. After a run was killed,
// the next run takes over the folder.
TEST(OneRun, HasItsOutputFolderForItself) {
  const TempFolder folder, second;
  const fs::path out = folder / "out";
  const auto endless = with(words(out), {"save_steps=1", "save_total_limit=2", "max_steps=100000"});
  const Running running(folder.path(), endless);
  ASSERT_TRUE(wait_until([&] { return is_complete(out, 1) || is_complete(out, 2); }));
  for (const char* how : {"overwrite_output_dir=true", "resume_from_checkpoint=true"}) {
    const Outcome refused = run_fettle(second, with(words(out), {how}));
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("output_dir: the run on "), HasSubstr("process "), HasSubstr("since "),
                                   HasSubstr("works in " + out.string())));
  }
  const size_t done = logged_losses(out).size();
  EXPECT_TRUE(wait_until([&] { return running.ended() || logged_losses(out).size() > done + 2; }));
  EXPECT_FALSE(running.ended());
  running.send(SIGKILL);
  running.wait();
  const Outcome resumed = run_fettle(second, with(words(out), {"resume_from_checkpoint=true", "save_total_limit=2",
                                                               "max_steps=100000", "plan_only=true"}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("was killed or crashed; this run takes over"));
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_THAT(entry.path().filename().string(), Not(AnyOf(HasSubstr(".tmp-"), HasSubstr(".fettle-"))));
}

// The last files of a run are written after its result. If it is killed there, the next run removes the unfinished
// file.
TEST(OneRun, ThatIsKilledInItsLastWritesLeavesNothingToTheNext) {
  for (const auto& [file, nth] : {std::pair{"fettle_run.json", "2"}, {"report.html", "1"}}) {
    const TempFolder folder;
    const fs::path out = folder / "out";
    {
      const Faults faults("rename", std::string("out/") + file, "KILL", nth);
      EXPECT_EQ(run_fettle(folder, words(out)).code, 128 + SIGKILL);
    }
    ASSERT_THAT(list_tree(out), Contains(HasSubstr(std::string(file) + ".tmp-"))) << "it was killed elsewhere";
    const Outcome resumed = run_fettle(folder, with(words(out), {"resume_from_checkpoint=true"}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(list_tree(out), Each(Not(AnyOf(HasSubstr(".tmp-"), HasSubstr(".fettle-")))));
  }
}

TEST(Faults, ALogLineWaitsForTheNextOne) {
  const TempFolder folder;
  const Faults faults("write", "trainer_log.jsonl", "ENOSPC", "2", "2");
  const Outcome run = run_fettle(folder, words(folder / "out"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("this line is written with the next one"),
                             HasSubstr("it now also has the 2 earlier lines")));
  EXPECT_EQ(logged_losses(folder / "out").size(), 6u);
}

TEST(Faults, ACheckpointIsTriedAgain) {
  for (const auto& [call, how] : {std::pair{"fsync", "EIO"}, {"write", "ENOSPC"}, {"rename", "ESTALE"}}) {
    const TempFolder folder;
    const Faults faults(call, "/checkpoint-4.tmp", how);
    const Outcome run = run_fettle(folder, words(folder / "out"));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("checkpoint-4: "), HasSubstr("trying again"), HasSubstr("checkpoint-4 saved")));
    EXPECT_TRUE(is_complete(folder / "out", 4)) << call;
  }
}

TEST(Faults, ACheckpointIsGivenUpAndTrainingGoesOn) {
  const TempFolder folder;
  const Faults faults("open", "/checkpoint-4.tmp", "EIO", "1", "all");
  const Outcome run = run_fettle(folder, words(folder / "out"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("checkpoint-4 could not be saved"), HasSubstr("training continues"),
                             HasSubstr((folder / "out/checkpoint-2").string())));
  EXPECT_FALSE(fs::exists(folder / "out/checkpoint-4"));
  EXPECT_TRUE(is_complete(folder / "out", 2) && is_complete(folder / "out", 6));
  EXPECT_TRUE(fs::exists(folder / "out/adapter_model.safetensors"));
}

TEST(Faults, AnInterruptedRunThatCannotSaveSaysSo) {
  const TempFolder folder;
  const Faults faults("write", "/checkpoint-", "ENOSPC", "1", "all");
  const Running running(folder.path(), with(words(folder / "out"), {"save_steps=100000", "max_steps=5000"}));
  ASSERT_TRUE(wait_until([&] { return logged_losses(folder / "out").size() >= 2; }));
  running.send(SIGTERM);
  const Outcome run = running.wait();
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("could not be saved"), HasSubstr("No space left"), Not(HasSubstr("is saved in"))));
}

TEST(Faults, TheResultIsTriedAgain) {
  const TempFolder folder;
  const Faults faults("fsync", "/out/.result", "EIO");
  const Outcome run = run_fettle(folder, words(folder / "out"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("the result: "), HasSubstr("trying again")));
  EXPECT_TRUE(fs::exists(folder / "out/adapter_model.safetensors"));
}

TEST(Faults, AResultThatCannotBeWrittenFailsTheRun) {
  const TempFolder folder;
  {
    const Faults faults("open", "/out/.result", "ENOSPC", "1", "all");
    const Outcome run = run_fettle(folder, words(folder / "out"));
    EXPECT_NE(run.code, 0);
    EXPECT_THAT(run.err, HasSubstr("No space left"));
  }
  EXPECT_FALSE(fs::exists(folder / "out/adapter_model.safetensors"));
}

// An earlier run left the result of a smaller adapter. The next run replaces this result by renames and deletions. In
// round `nth`, it is killed before call number `nth` of these.
TEST(Faults, AKillWhileTheResultIsMovedLeavesNoMixture) {
  const TempFolder folder;
  const fs::path out = folder / "out";
  const auto short_run = with(words(out), {"max_steps=2"});
  const auto newer = with(short_run, {"lora_rank=8", "overwrite_output_dir=true"});
  const auto result_of = [](const fs::path& output) {
    std::map<std::string, std::string> files;
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      if (fs::exists(output / file)) files[file] = read_text(output / file);
    return files;
  };
  ASSERT_EQ(run_fettle(folder, short_run).code, 0);
  const auto before = result_of(out);
  fs::copy(out, folder / "first", fs::copy_options::recursive);
  ASSERT_EQ(run_fettle(folder, newer).code, 0);
  const auto after = result_of(out);
  ASSERT_NE(before.at("adapter_model.safetensors"), after.at("adapter_model.safetensors"));
  int kills = 0, old = 0, none = 0, completed = 0;
  for (int nth = 1; nth < 60; ++nth) {
    fs::remove_all(out);
    fs::copy(folder / "first", out, fs::copy_options::recursive);
    {
      const Faults faults("rename,unlink", "/out/.result", "KILL", std::to_string(nth));
      const Outcome run = run_fettle(folder, newer);
      if (run.code == 0) break;
      ASSERT_EQ(run.code, 128 + SIGKILL) << run.err;
    }
    ++kills;
    const auto found = result_of(out);
    const bool loads = found.contains("adapter_config.json");
    EXPECT_TRUE(!loads || found == before || found == after) << "kill " << nth << " left a mixture";
    old += loads && found == before;
    none += !loads;
    const Outcome next = run_fettle(folder, with(short_run, {"lora_rank=8", "resume_from_checkpoint=true"}));
    EXPECT_EQ(next.code, 0) << next.err;
    completed += next.err.find("an interrupted run had begun to move its result here") != std::string::npos;
    EXPECT_EQ(result_of(out), after) << "kill " << nth;
    EXPECT_FALSE(fs::exists(out / ".result"));
  }
  EXPECT_GT(kills, 5);
  EXPECT_LT(kills, 59);
  EXPECT_GT(old, 0);
  EXPECT_GT(none, 0);
  EXPECT_GT(completed, 0);
}

constexpr const char* kDated =
    "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor "
    "%}";

// The clock jumps by half a day whenever it is read. The run is resumed ten days later.
TEST(Midnight, ChangesNeitherARunNorItsResume) {
  const TempFolder folder;
  const fs::path model = folder / "model";
  fs::copy(reference_model("llama"), model);
  auto config = nlohmann::json::parse(read_text(model / "tokenizer_config.json"));
  config["chat_template"] = kDated;
  write_text(model / "tokenizer_config.json", config.dump());
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += nlohmann::json{{"messages",
                            {{{"role", "user"}, {"content", "say " + std::to_string(i)}},
                             {{"role", "assistant"}, {"content", std::string(size_t(i + 1), 'x')}}}}}
                .dump() +
            "\n";
  write_text(folder / "rows.jsonl", rows);
  const Environment library("LD_PRELOAD", FETTLE_FAULTS);
  const auto run = [&](const char* output, const std::string& clock, const std::vector<std::string>& more) {
    const Environment fake("FAULT_CLOCK", clock);
    return run_fettle(
        folder, with(with(words(folder / output), {"model_name_or_path=" + model.string(), "val_size=2", "template=",
                                                   "dataset=" + (folder / "rows.jsonl").string(), "eval_strategy=steps",
                                                   "eval_steps=3", "data_cache=" + (folder / "cache").string()}),
                     more));
  };
  const Outcome whole = run("whole", "1721649600", {});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome jumping = run("jumping", "1721649600+43200", {});
  ASSERT_EQ(jumping.code, 0) << jumping.err;
  for (const char* output : {"whole", "jumping"}) {
    const std::vector<std::string> wanted = logged_losses(folder / output);
    for (const char* later : {"checkpoint-4", "checkpoint-6"}) fs::remove_all(folder / output / later);
    fs::remove_all(folder / "cache");
    const Outcome resumed = run(output, "1722513600+43200", {"resume_from_checkpoint=true"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(logged_losses(folder / output), wanted);
  }
}

}  // namespace
}  // namespace fettle
