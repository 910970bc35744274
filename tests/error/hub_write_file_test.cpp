// Tests that a file that cannot be written leaves nothing behind.
#include <gtest/gtest.h>

#include "hub/write_file.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(WriteFileWhole, AFolderInItsPlaceIsAFailure) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "ref/main");
  EXPECT_FALSE(write_file_whole(folder / "ref", "text"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / ""), {}), 1) << "only the folder ref is there";
}

}  // namespace
}  // namespace fettle
