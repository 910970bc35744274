// Tests folders for a while where none can be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/files/scratch_folder.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(ScratchFolder, TheMessageNamesTMPDIR) {
  const TempFolder folder;
  const char* usual = getenv("TMPDIR");
  const std::string before = usual != nullptr ? usual : "";
  setenv("TMPDIR", (folder / "missing").c_str(), 1);
  const std::string missing = user_error([] { ScratchFolder("fettle-test"); });
  setenv("TMPDIR", folder.path().c_str(), 1);
  const std::string unusable = user_error([] { ScratchFolder("missing/fettle-test"); });
  std::filesystem::path made;
  {
    const ScratchFolder scratch("fettle-test");
    made = scratch.path();
    write_text(made / "a/b", "content");
    EXPECT_EQ(made.parent_path(), folder.path());
  }
  usual != nullptr ? setenv("TMPDIR", before.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_THAT(missing, testing::HasSubstr("TMPDIR does not name a folder"));
  EXPECT_THAT(unusable, testing::AllOf(testing::HasSubstr("No such file"), testing::HasSubstr("set TMPDIR to")));
  EXPECT_FALSE(std::filesystem::exists(made));
}

}  // namespace
}  // namespace fettle
