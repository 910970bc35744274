// Tests that all files of a result get into the root of an output folder together. tests/end_to_end/faults_test.cpp
// kills a run during the move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/repository.h"
#include "checkpoint/saved/result_folder.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

TEST(ResultFolder, MovesFilesAndDropsNamedOnes) {
  TempFolder folder;
  write_text(folder / "out/x", "old");
  write_text(folder / "out/checkpoint-1/y", "kept");
  write_text(folder / "out/adapter_config.json", "old");
  write_text(folder / "out/both", "old");
  {
    ResultFolder result(folder / "out");
    write_text(result.path() / "x", "new");
    write_text(result.path() / "sub/z", "new");
    write_text(result.path() / "both", "new");
    write_text(result.path() / "config.json", "new");
    result.drop("adapter_config.json");
    result.drop("both");
    EXPECT_TRUE(fs::exists(folder / "out/adapter_config.json"));
    result.commit();
  }
  EXPECT_THAT(list_tree(folder.path()),
              ElementsAre("out/both", "out/checkpoint-1/y", "out/config.json", "out/sub/z", "out/x"));
  EXPECT_EQ(read_text(folder / "out/x"), "new");
  EXPECT_EQ(read_text(folder / "out/both"), "new");
}

TEST(ResultFolder, DisappearsWithoutCommit) {
  TempFolder folder;
  write_text(folder / "out/x", "old");
  {
    ResultFolder result(folder / "out");
    write_text(result.path() / "x", "new");
  }
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/x"));
  EXPECT_EQ(read_text(folder / "out/x"), "old");
}

// Makes the folder as a crash in the middle of the moves leaves it.
TEST(ResultFolder, ACutOffMoveIsCompleted) {
  TempFolder folder;
  write_text(folder / "out/.result/.drops.json", R"(["adapter_config.json", "a"])");
  write_text(folder / "out/.result/config.json", "new");
  write_text(folder / "out/.result/sub/b", "new");
  write_text(folder / "out/moved", "new");
  write_text(folder / "out/a", "old");
  write_text(folder / "out/sub/b", "old");
  EXPECT_TRUE(has_cut_off_result(folder / "out"));
  EXPECT_THAT(
      user_error([&] { ModelRepository::open(folder / "out"); }),
      testing::HasSubstr("interrupted while it moved its result to this folder; start the run again with resume"));
  finish_result(folder / "out");
  EXPECT_FALSE(has_cut_off_result(folder / "out"));
  EXPECT_THAT(list_tree(folder.path()), ElementsAre("out/config.json", "out/moved", "out/sub/b"));
  EXPECT_EQ(read_text(folder / "out/sub/b"), "new");
  finish_result(folder / "out");
}

}  // namespace
}  // namespace fettle
