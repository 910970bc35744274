#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/free_space.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/process_name.h"
#include "base/size_text.h"
#include "checkpoint/saved/atomic_folder.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Existing = AtomicFolder::Existing;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(AtomicFolder, AppearsOnlyOnCommit) {
  TempFolder folder;
  AtomicFolder work(folder / "a/b/checkpoint-1", Existing::kRefuse);
  write_text(work.path() / "state/x", "1");
  write_text(work.path() / "y", "2");
  EXPECT_FALSE(fs::exists(folder / "a/b/checkpoint-1"));
  work.commit();
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("a/b/checkpoint-1/state/x", "a/b/checkpoint-1/y"));
}

TEST(AtomicFolder, DisappearsWithoutCommit) {
  TempFolder folder;
  write_text(folder / "old/x", "old");
  {
    AtomicFolder work(folder / "old", Existing::kReplace);
    write_text(work.path() / "x", "new");
  }
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("old/x"));
  EXPECT_EQ(read_text(folder / "old/x"), "old");
}

TEST(AtomicFolder, ReplacesTheOldFolder) {
  TempFolder folder;
  write_text(folder / "out/x", "old");
  write_text(folder / "out/gone", "old");
  AtomicFolder work(folder / "out/", Existing::kReplace);
  write_text(work.path() / "x", "new");
  work.commit();
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
  EXPECT_EQ(read_text(folder / "out/x"), "new");
}

TEST(AtomicFolder, ReplaceMakesANewFolderToo) {
  TempFolder folder;
  AtomicFolder work(folder / "out", Existing::kReplace);
  write_text(work.path() / "x", "new");
  work.commit();
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
}

TEST(AtomicFolder, AnEmptyFolderMayBeUsed) {
  TempFolder folder;
  fs::create_directories(folder / "out");
  AtomicFolder work(folder / "out", Existing::kRefuse);
  write_text(work.path() / "x", "new");
  work.commit();
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
}

TEST(AtomicFolder, FollowsALink) {
  TempFolder folder;
  write_text(folder / "real/x", "old");
  fs::create_directory_symlink(folder / "real", folder / "link");
  AtomicFolder work(folder / "link", Existing::kReplace);
  write_text(work.path() / "x", "new");
  work.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "real/x"), "new");
}

const std::string kDead = "0123456789abcdef", kAlive = "fedcba9876543210", kElsewhere = "00112233-445";

// Makes it look as if another process, kAlive, works in `folder`. The other process counts as alive, because its
// presence file has the process number of this process.
void show_alive(const fs::path& folder) {
  Owner owner = Owner::own();
  owner.id = kAlive;
  write_text(presence_file(folder, kAlive), owner.json().dump());
}

TEST(AtomicFolder, CleansWhatDeadProcessesLeft) {
  TempFolder folder;
  show_alive(folder.path());
  for (const std::string& dead : {kDead, kElsewhere}) {
    write_text(folder / ("out.tmp-" + dead + "/x"), "");
    write_text(folder / ("out.old-" + dead + "/x"), "");
    write_text(folder / ("other.tmp-" + dead + "/x"), "");
  }
  write_text(folder / ("out.tmp-" + kAlive + "/x"), "");
  write_text(folder / "out.tmp-x/x", "");
  write_text(folder / "out/x", "");
  { AtomicFolder work(folder / "out", Existing::kReplace); }
  EXPECT_THAT(
      list_tree(folder.path()),
      testing::UnorderedElementsAre(".fettle-" + kAlive, "out/x", "out.tmp-" + kAlive + "/x",
                                    "other.tmp-" + kDead + "/x", "other.tmp-" + kElsewhere + "/x", "out.tmp-x/x"));
}

// A dead process left its presence file. This process started later and got the same process number.
TEST(AtomicFolder, AProcessNumberThatWasGivenAgainIsNoLife) {
  TempFolder folder;
  Owner owner = Owner::own();
  owner.id = kDead;
  owner.started -= 1;
  write_text(presence_file(folder.path(), kDead), owner.json().dump());
  write_text(folder / ("out.tmp-" + kDead + "/x"), "");
  clean_leftovers(folder / "out");
  EXPECT_THAT(list_tree(folder.path()), ElementsAre(".fettle-" + kDead));
}

TEST(AtomicFolder, PutsBackAFolderLostBetweenTwoRenames) {
  TempFolder folder;
  show_alive(folder.path());
  write_text(folder / ("out.old-" + kDead + "/x"), "old");
  write_text(folder / ("busy.old-" + kAlive + "/x"), "old");
  clean_leftovers(folder / "out");
  clean_leftovers(folder / "busy");
  EXPECT_THAT(list_tree(folder.path()), ElementsAre(".fettle-" + kAlive, "busy.old-" + kAlive + "/x", "out/x"));
}

TEST(AtomicFolder, AllLeftoversInAFolderAreRemoved) {
  TempFolder folder;
  show_alive(folder.path());
  Owner owner = Owner::own();
  owner.pid_space = "none";
  owner.boot = "none";
  write_text(presence_file(folder.path(), kDead), owner.json().dump());
  fs::last_write_time(presence_file(folder.path(), kDead), fs::file_time_type::clock::now() - std::chrono::minutes(3));
  for (const std::string& left : {"out.tmp-" + kDead, ".tmp-" + kElsewhere, "there.old-" + kDead})
    write_text(folder / left / "x", "");
  write_text(folder / ("log.jsonl.tmp-" + kDead), "");
  write_text(folder / ("old.json.tmp-" + kElsewhere), "");
  fs::last_write_time(folder / ("old.json.tmp-" + kElsewhere),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  write_text(folder / ("new.json.tmp-" + kElsewhere), "");
  for (const std::string& kept : {"out.tmp-" + kAlive, std::string("there"), std::string("x.tmp-"), std::string("a-1"),
                                  std::string("b.tmp-1x"), std::string("-7")})
    write_text(folder / kept / "x", "");
  write_text(folder / ("lost.old-" + kDead + "/x"), "");
  EXPECT_EQ(clean_folder(folder.path()).size(), 5u);
  EXPECT_THAT(list_tree(folder.path()),
              testing::UnorderedElementsAre(".fettle-" + kAlive, "out.tmp-" + kAlive + "/x", "there/x", "x.tmp-/x",
                                            "a-1/x", "b.tmp-1x/x", "-7/x", "lost/x", "new.json.tmp-" + kElsewhere));
  EXPECT_THAT(clean_folder(folder / "none"), IsEmpty());
}

TEST(AtomicFolder, ASmallFileOfAKilledRunIsRemovedByTheNextRun) {
  TempFolder folder;
  const pid_t pid = fork();
  if (pid == 0) {
    const auto presence = Presence::alone_in(folder.path());
    write_text(folder / ("log.jsonl.tmp-" + process_name()), "half");
    _exit(0);  // like SIGKILL: runs no destructor
  }
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(list_tree(folder.path()).size(), 2u);
  const auto presence = Presence::alone_in(folder.path());
  clean_folder(folder.path());
  EXPECT_THAT(list_tree(folder.path()), ElementsAre(".fettle-" + process_name()));
}

TEST(AtomicFolder, ACrashLeavesNothingUnderTheName) {
  TempFolder folder;
  write_text(folder / "out/x", "old");
  const pid_t pid = fork();
  if (pid == 0) {
    AtomicFolder work(folder / "out", Existing::kReplace);
    write_text(work.path() / "x", "new");
    _exit(0);  // like SIGKILL: runs no destructor
  }
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(read_text(folder / "out/x"), "old");
  EXPECT_EQ(list_tree(folder.path()).size(), 3u) << "out, what is unfinished, and the process's presence";
  clean_folder(folder.path());
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
}

TEST(AtomicFolder, RemovesAFolder) {
  TempFolder folder;
  write_text(folder / "out/sub/x", "");
  remove_folder(folder / "out");
  remove_folder(folder / "out");
  EXPECT_THAT(list_tree(folder.path()), IsEmpty());
}

TEST(Files, WriteReplacesAWholeFile) {
  TempFolder folder;
  write_file(folder / "x", "a longer old text");
  write_file(folder / "x", "new");
  EXPECT_EQ(read_file(folder / "x"), "new");
  write_file(folder / "x", "");
  EXPECT_EQ(read_file(folder / "x"), "");
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("x"));
}

TEST(Files, JsonHasSortedKeysAndAscii) {
  TempFolder folder;
  write_json_file(folder / "x", {{"b", 1}, {"a", "\u00e9"}});
  EXPECT_EQ(read_text(folder / "x"), "{\n  \"a\": \"\\u00e9\",\n  \"b\": 1\n}\n");
  EXPECT_EQ(read_json_file(folder / "x").at("a"), "\u00e9");
}

TEST(Files, FreeBytesOfAPlaceThatIsNotThereYet) {
  TempFolder folder;
  EXPECT_GT(free_bytes(folder / "a/b/c"), 0);
  require_free_bytes(folder / "a/b/c", 0, "nothing");
  EXPECT_EQ(size_text(20), "20 bytes");
  EXPECT_EQ(size_text(12'345'678), "12.35 MB");
  EXPECT_EQ(size_text(4'567'000'000), "4.57 GB");
}

}  // namespace
}  // namespace fettle
