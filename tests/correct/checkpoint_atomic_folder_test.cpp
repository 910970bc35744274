#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process_name.h"
#include "base/size_text.h"
#include "checkpoint/files.h"
#include "checkpoint/saved/atomic_folder.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Existing = AtomicFolder::Existing;
using testing::ElementsAre;
using testing::IsEmpty;

// Returns the id of a process that has ended.
pid_t gone() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

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
  for (Existing existing : {Existing::kReplace, Existing::kMerge}) {
    AtomicFolder work(folder / "old", existing);
    write_text(work.path() / "x", "new");
  }
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("old/x"));
  EXPECT_EQ(read_text(folder / "old/x"), "old");
  EXPECT_FALSE(fs::exists(folder / ("old/.tmp-" + std::to_string(getpid()))));
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

TEST(AtomicFolder, MergesFilesAndDropsNamedOnes) {
  TempFolder folder;
  write_text(folder / "out/x", "old");
  write_text(folder / "out/checkpoint-1/y", "kept");
  write_text(folder / "out/model-00001-of-00002.safetensors", "old");
  write_text(folder / "out/both", "old");
  AtomicFolder work(folder / "out", Existing::kMerge);
  write_text(work.path() / "x", "new");
  write_text(work.path() / "sub/z", "new");
  write_text(work.path() / "both", "new");
  work.drop("model-00001-of-00002.safetensors");
  work.drop("both");
  EXPECT_TRUE(fs::exists(folder / "out/model-00001-of-00002.safetensors"));
  work.commit();
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/both", "out/checkpoint-1/y", "out/sub/z", "out/x"));
  EXPECT_EQ(read_text(folder / "out/x"), "new");
  EXPECT_EQ(read_text(folder / "out/both"), "new");
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

std::string named(pid_t pid) {
  return ProcessName{ProcessName::own().machine, pid}.text();
}

TEST(AtomicFolder, CleansWhatDeadProcessesLeft) {
  TempFolder folder;
  const std::string dead = named(gone()), alive = named(getppid());
  const std::string elsewhere = ProcessName{ProcessName::own().machine + 1, gone()}.text();
  write_text(folder / ("out.tmp-" + elsewhere + "/x"), "");
  write_text(folder / ("out.tmp-" + dead + "/x"), "");
  write_text(folder / ("out.old-" + dead + "/x"), "");
  write_text(folder / ("out/.tmp-" + dead + "/x"), "");
  write_text(folder / ("out.tmp-" + alive + "/x"), "");
  write_text(folder / ("other.tmp-" + dead + "/x"), "");
  write_text(folder / "out.tmp-x/x", "");
  write_text(folder / "out/x", "");
  { AtomicFolder work(folder / "out", Existing::kReplace); }
  EXPECT_THAT(list_tree(folder.path()),
              testing::UnorderedElementsAre("out/x", "out.tmp-" + alive + "/x", "out.tmp-" + elsewhere + "/x",
                                            "other.tmp-" + dead + "/x", "out.tmp-x/x"));
}

TEST(AtomicFolder, PutsBackAFolderLostBetweenTwoRenames) {
  TempFolder folder;
  write_text(folder / ("out.old-" + named(gone()) + "/x"), "old");
  clean_leftovers(folder / "out");
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
}

TEST(AtomicFolder, AllLeftoversInAFolderAreRemoved) {
  TempFolder folder;
  const std::string dead = named(gone()), own = named(getpid()), alive = named(getppid());
  for (const std::string& left : {"out.tmp-" + dead, "log.jsonl.tmp-" + own, ".tmp-" + dead, "there.old-" + dead})
    write_text(folder / left / "x", "");
  for (const std::string& kept : {"out.tmp-" + alive, std::string("there"), std::string("x.tmp-"), std::string("a-1"),
                                  std::string("b.tmp-1x"), std::string("-7")})
    write_text(folder / kept / "x", "");
  write_text(folder / ("lost.old-" + dead + "/x"), "");
  EXPECT_EQ(clean_folder(folder.path()).size(), 4u);
  EXPECT_THAT(list_tree(folder.path()), testing::UnorderedElementsAre("out.tmp-" + alive + "/x", "there/x", "x.tmp-/x",
                                                                      "a-1/x", "b.tmp-1x/x", "-7/x", "lost/x"));
  EXPECT_THAT(clean_folder(folder / "none"), IsEmpty());
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
  EXPECT_EQ(list_tree(folder.path()).size(), 2u);
  clean_leftovers(folder / "out");
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
