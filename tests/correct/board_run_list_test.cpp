// Tests which folders the board shows as runs, and what it shows about them when files change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "board/run_list.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string log_lines(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step)
    text += "{\"current_steps\": " + std::to_string(step) + ", \"total_steps\": 10, \"loss\": " + std::to_string(step) +
            "}\n";
  return text;
}

class Runs : public testing::Test {
 protected:
  RunList list() const {
    return RunList(folder.path(), [this](const std::string& name) { return name == started; });
  }
  TempFolder folder;
  std::string started;
};

std::vector<std::string> names_in(const ordered_json& changes) {
  std::vector<std::string> names;
  for (const ordered_json& run : changes["runs"]) names.push_back(run["name"]);
  return names;
}

ordered_json only(RunList& runs) {
  runs.refresh(0);
  const ordered_json changes = runs.changes(0);
  return changes["runs"].size() == 1 ? changes["runs"][0] : ordered_json(changes.dump());
}

TEST_F(Runs, AreFoldersWithFilesOfARun) {
  write_text(folder / "trainer_log.jsonl", log_lines(1, 3));
  write_text(folder / "a/b/c/trainer_log.jsonl", log_lines(1, 2));
  write_text(folder / "board/train.log", "starting");
  write_text(folder / "new/fettle_run.json", "{}");
  for (const char* none : {"empty/notes.txt", ".hidden/trainer_log.jsonl", "a/checkpoint-5/trainer_log.jsonl",
                           "1/2/3/4/5/6/7/trainer_log.jsonl"})
    write_text(folder / none, "");
  RunList runs = list();
  EXPECT_THAT(runs.changes(0)["runs"], IsEmpty()) << "before the first look";
  runs.refresh();
  EXPECT_THAT(names_in(runs.changes(0)), ElementsAre(".", "a/b/c", "board", "new"));
  EXPECT_EQ(runs.path_of("."), "");
  EXPECT_EQ(runs.path_of("a/b/c"), "a/b/c");
  for (const char* other : {"", "a", "a/b/c/", "../x", "a/../board", "/etc", "board/.."})
    EXPECT_EQ(runs.path_of(other), std::nullopt) << other;
}

TEST_F(Runs, HaveTheStateOfTheirFilesAndProcess) {
  write_text(folder / "x/trainer_log.jsonl", log_lines(1, 3));
  RunList runs = list();
  for (const auto& [written, shown] :
       {std::pair{"finished", "finished"}, {"stopped", "stopped"}, {"failed", "failed"}, {"running", "killed"}}) {
    write_text(folder / "x/fettle_run.json", ordered_json{{"state", written}, {"message", "m"}}.dump());
    const ordered_json run = only(runs);
    EXPECT_EQ(run["state"], shown);
    EXPECT_EQ(run["message"], "m");
    EXPECT_EQ(run["loss"], 3);
    EXPECT_EQ(run["step"], 3);
    EXPECT_EQ(run["total_steps"], 10);
  }
  started = "x";
  EXPECT_EQ(only(runs)["state"], "running");
  started = "";
  {
    const auto presence = Presence::in(folder / "x");
    EXPECT_EQ(only(runs)["state"], "killed") << "this process reads the folder, but is no run";
  }
  {
    const auto presence = Presence::alone_in(folder / "x");
    EXPECT_EQ(only(runs)["state"], "running");
    const std::optional<Owner> owner = runs.owner("x");
    ASSERT_TRUE(owner.has_value());
    EXPECT_EQ(owner->pid, getpid());
  }
  EXPECT_EQ(only(runs)["state"], "killed");
  EXPECT_EQ(runs.owner("x"), std::nullopt);
}

// Other tools write no fettle_run.json, so the log tells whether they still train.
TEST_F(Runs, OfOtherToolsHaveTheStateOfTheirLog) {
  const fs::path log = folder / "x/trainer_log.jsonl";
  write_text(log, R"({"current_steps": 5, "total_steps": 10, "loss": 2, "remaining_time": "0:01:40"})"
                  "\n");
  RunList runs = list();
  EXPECT_EQ(only(runs)["state"], "running");
  EXPECT_EQ(only(runs)["seconds_left"], 100);
  fs::last_write_time(log, fs::file_time_type::clock::now() - std::chrono::minutes(11));
  EXPECT_EQ(only(runs)["state"], "stopped");
  EXPECT_EQ(only(runs)["seconds_left"], 0);
  write_text(log, log_lines(1, 10));
  EXPECT_EQ(only(runs)["state"], "ended");
}

TEST_F(Runs, AreThoseOfTheFolderThatHasTheNameNow) {
  write_text(folder / "runs/old/trainer_log.jsonl", log_lines(1, 3));
  write_text(folder / "runs/same/trainer_log.jsonl", log_lines(1, 3));
  RunList runs(folder / "runs", [](const std::string&) { return false; });
  runs.refresh(0);
  ASSERT_THAT(names_in(runs.changes(0)), ElementsAre("old", "same"));
  EXPECT_EQ(runs.changes(0)["problem"], "");
  fs::rename(folder / "runs", folder / "aside");
  runs.refresh(0);
  EXPECT_THAT(names_in(runs.changes(0)), ElementsAre("old", "same")) << "the folder may come back";
  EXPECT_THAT(runs.changes(0)["gone"], IsEmpty());
  EXPECT_THAT(runs.changes(0)["problem"].get<std::string>(),
              AllOf(HasSubstr((folder / "runs").string()), HasSubstr("No such file or directory")));
  write_text(folder / "runs/same/trainer_log.jsonl", log_lines(1, 5));
  write_text(folder / "runs/new/trainer_log.jsonl", log_lines(1, 2));
  runs.refresh(0);
  const ordered_json now = runs.changes(0);
  EXPECT_THAT(names_in(now), ElementsAre("new", "same"));
  EXPECT_EQ(now["runs"][1]["step"], 5);
  EXPECT_EQ(now["gone"], ordered_json({"old"}));
  EXPECT_EQ(now["problem"], "");
}

TEST_F(Runs, InAFolderThatCannotBeReadStayAsTheyWere) {
  write_text(folder / "a/b/trainer_log.jsonl", log_lines(1, 3));
  write_text(folder / "ab/trainer_log.jsonl", log_lines(1, 3));
  RunList runs = list();
  runs.refresh(0);
  fs::remove_all(folder / "ab");
  const int next = dup(STDIN_FILENO);
  close(next);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);  // one more file may be open, but a folder below the root takes two
  runs.refresh(0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(names_in(runs.changes(0)), ElementsAre("a/b"));
  EXPECT_EQ(runs.changes(0)["problem"], "");
}

TEST_F(Runs, FiguresAreThoseOfTheWholeLog) {
  const std::string first = R"({"current_steps": 1, "elapsed_time": "0:00:40", "eval_loss": 0.5})";
  const std::string line = R"({"current_steps": 2, "elapsed_time": "0:00:05", "loss": 3})";
  std::string text = first + "\n";
  while (text.size() < 6 << 20) text += line + "\n";
  write_text(folder / "x/trainer_log.jsonl", text);
  RunList runs = list();
  const ordered_json run = only(runs);
  EXPECT_EQ(run["eval_loss"], 0.5);
  EXPECT_EQ(run["loss"], 3);
  EXPECT_EQ(run["seconds"], 45) << "both processes of the resumed run";
  std::ofstream(folder / "x/trainer_log.jsonl", std::ios::app)
      << R"({"current_steps": 3, "elapsed_time": "0:00:01", "loss": 2})"
      << "\n";
  EXPECT_EQ(only(runs)["loss"], 2);
  EXPECT_EQ(only(runs)["eval_loss"], 0.5);
  EXPECT_EQ(only(runs)["seconds"], 46);
}

TEST_F(Runs, BrokenFilesShowWhatIsLeft) {
  for (const char* text : {"", "{", "[]", "null", R"({"state": 3, "recipe": [], "total_steps": "x", "name": {}})"}) {
    write_text(folder / "x/fettle_run.json", text);
    RunList runs = list();
    EXPECT_EQ(only(runs)["name"], "x") << text;
    EXPECT_EQ(only(runs)["total_steps"], 0);
  }
}

TEST_F(Runs, OnlyChangesAreReported) {
  write_text(folder / "a/trainer_log.jsonl", log_lines(1, 3));
  write_text(folder / "b/trainer_log.jsonl", log_lines(1, 3));
  RunList runs = list();
  runs.refresh(0);
  uint64_t seen = runs.changes(0)["generation"];
  runs.refresh(0);
  EXPECT_THAT(runs.changes(seen)["runs"], IsEmpty());
  write_text(folder / "b/trainer_log.jsonl", log_lines(1, 4));
  runs.refresh(0);
  EXPECT_THAT(names_in(runs.changes(seen)), ElementsAre("b"));
  seen = runs.changes(0)["generation"];
  fs::remove_all(folder / "a");
  runs.refresh(0);
  EXPECT_THAT(runs.changes(seen)["gone"], ElementsAre("a"));
  EXPECT_THAT(names_in(runs.changes(0)), ElementsAre("b"));
  write_text(folder / "a/trainer_log.jsonl", log_lines(1, 1));
  runs.refresh(0);
  EXPECT_THAT(runs.changes(seen)["gone"], IsEmpty());
}

TEST_F(Runs, LinksLeadNowhere) {
  const TempFolder outside;
  write_text(outside / "run/trainer_log.jsonl", log_lines(1, 3));
  write_text(folder / "real/fettle_run.json", "{}");
  fs::create_directory_symlink(outside / "run", folder / "linked");
  fs::create_symlink(outside / "run/trainer_log.jsonl", folder / "real/trainer_log.jsonl");
  RunList runs = list();
  runs.refresh();
  EXPECT_THAT(names_in(runs.changes(0)), ElementsAre("real"));
  bool used = false;
  EXPECT_TRUE(runs.with_log("real", [&](const RunLog& log) {
    used = true;
    EXPECT_THAT(log.rows(), IsEmpty());
  }));
  EXPECT_TRUE(used);
  EXPECT_FALSE(runs.with_log("linked", [](const RunLog&) { FAIL(); }));
}

// If the size and the time of a file are as before, it is not read again. The test changes the content of all logs, but
// the size and the time of only one log.
TEST_F(Runs, AThousandAreReadOnce) {
  constexpr int kCount = 1000;
  const auto log_of = [&](int i) { return folder / ("sweep-" + std::to_string(i)) / "trainer_log.jsonl"; };
  for (int i = 0; i < kCount; ++i) write_text(log_of(i), log_lines(1, 5));
  RunList runs = list();
  runs.refresh(0);
  const ordered_json all = runs.changes(0);
  EXPECT_THAT(all["runs"], SizeIs(kCount));
  EXPECT_EQ(all["more"], false);
  EXPECT_LT(all.dump().size(), kCount * 600u) << "bytes of the first answer";
  for (int i = 0; i < kCount; ++i) {
    const auto time = fs::last_write_time(log_of(i));
    std::string text = log_lines(1, 5);
    text.replace(text.rfind(": 5}") + 2, 1, "7");
    std::fstream(log_of(i), std::ios::in | std::ios::out | std::ios::binary) << text;
    fs::last_write_time(log_of(i), time);
  }
  write_text(log_of(77), log_lines(1, 6));
  runs.refresh(0);
  const ordered_json changed = runs.changes(all["generation"]);
  ASSERT_THAT(names_in(changed), ElementsAre("sweep-77"));
  EXPECT_EQ(changed["runs"][0]["loss"], 6);
  EXPECT_EQ(runs.changes(0)["runs"][0]["loss"], 5) << "was read again";
}

TEST_F(Runs, AFolderThatIsNoneIsNamed) {
  EXPECT_THAT(user_error([&] { RunList(folder / "none", [](const std::string&) { return false; }); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace fettle
