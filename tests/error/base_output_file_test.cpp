// Tests that a file of a cache that cannot be written leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/output_file.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(WriteCacheFile, AFolderInItsPlaceIsAFailure) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "ref/main");
  EXPECT_FALSE(write_cache_file(folder / "ref", "text"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1) << "only the folder ref is there";
}

TEST(WriteCacheFile, AFileInPlaceOfItsFolderIsAFailure) {
  const TempFolder folder;
  EXPECT_TRUE(write_cache_file(folder / "refs/main", "old"));
  EXPECT_TRUE(write_cache_file(folder / "refs/main", "new"));
  EXPECT_EQ(read_text(folder / "refs/main"), "new");
  EXPECT_FALSE(write_cache_file(folder / "refs/main/deeper/file", "text"));
  EXPECT_THAT(list_tree(folder.path()), testing::ElementsAre("refs/main"));
}

}  // namespace
}  // namespace fettle
