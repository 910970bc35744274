#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "temp_folder.h"

namespace fettle {
namespace {

// Paths on older file systems may have such bytes. A run must not end because it cannot write them down.
TEST(JsonFile, HasBytesThatAreNotUtf8AsReplacements) {
  const TempFolder folder;
  write_json_file(folder / "a.json", {{"path", "mod\xe8le"}}, 1);
  EXPECT_EQ(read_json_file(folder / "a.json")["path"], "mod\xef\xbf\xbdle");
}

}  // namespace
}  // namespace fettle
