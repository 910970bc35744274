#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/file_error.h"
#include "base/files/free_space.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "checkpoint/saved/atomic_folder.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Existing = AtomicFolder::Existing;
using testing::AllOf;
using testing::HasSubstr;

TEST(AtomicFolderPlace, AlreadyHoldsFiles) {
  TempFolder folder;
  write_text(folder / "out/x", "");
  EXPECT_THAT(user_error([&] { AtomicFolder(folder / "out", Existing::kRefuse); }),
              AllOf(HasSubstr((folder / "out").string()), HasSubstr("is not empty")));
  EXPECT_EQ(list_tree(folder.path()).size(), 1u);
}

TEST(AtomicFolderPlace, FilledWhileWorking) {
  TempFolder folder;
  AtomicFolder work(folder / "out", Existing::kRefuse);
  write_text(folder / "out/x", "theirs");
  EXPECT_THAT(user_error([&] { work.commit(); }), AllOf(HasSubstr("cannot create"), HasSubstr("out")));
  EXPECT_EQ(read_text(folder / "out/x"), "theirs");
}

TEST(AtomicFolderPlace, IsAFile) {
  TempFolder folder;
  write_text(folder / "out", "");
  for (Existing existing : {Existing::kRefuse, Existing::kReplace})
    EXPECT_THAT(user_error([&] { AtomicFolder(folder / "out", existing); }), HasSubstr("a file has that name"));
  EXPECT_THAT(user_error([&] { AtomicFolder(folder / "out/sub", Existing::kReplace); }), HasSubstr("cannot create"));
}

TEST(AtomicFolderPlace, IsAMountPoint) {
  for (Existing existing : {Existing::kRefuse, Existing::kReplace})
    EXPECT_THAT(user_error([&] { AtomicFolder("/proc", existing); }),
                HasSubstr("the folder /proc is a mount point (a volume), which cannot be replaced as a whole; choose a "
                          "folder inside it, such as /proc/model"));
}

TEST(AtomicFolderPlace, NotWritable) {
  EXPECT_THAT(user_error([] { AtomicFolder("/proc/fettle/out", Existing::kReplace); }),
              AllOf(HasSubstr("cannot create"), HasSubstr("/proc/fettle")));
}

TEST(FilesErrors, NameThePathAndTheReason) {
  TempFolder folder;
  EXPECT_THAT(user_error([&] { read_file(folder / "none"); }), AllOf(HasSubstr("cannot read"), HasSubstr("none")));
  EXPECT_THAT(user_error([&] { write_file(folder / "none/x", ""); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("none/x")));
  EXPECT_THAT(user_error([&] { write_file(folder.path(), ""); }), HasSubstr("cannot write"));
  EXPECT_THAT(user_error([&] { read_file("/dev/null"); }), HasSubstr("cannot read /dev/null"));
  EXPECT_THAT([&] { require_free_bytes(folder / "out", int64_t{1} << 60, "the checkpoint"); },
              testing::ThrowsMessage<DoesNotFit>(
                  AllOf(HasSubstr("the checkpoint needs 1152921504.61 GB"), HasSubstr("are free"))));
}

TEST(FilesErrors, FullDiskTellsWhatIsFree) {
  EXPECT_THAT([] { throw_file_error("write", "/tmp/x", ENOSPC); },
              testing::ThrowsMessage<DoesNotFit>(
                  AllOf(HasSubstr("cannot write /tmp/x: No space left on device"), HasSubstr("GB left"))));
}

TEST(FilesErrors, FullMemoryIsNoMistakeOfTheUser) {
  EXPECT_THAT([] { throw_file_error("read", "/tmp/x", ENOMEM); },
              testing::ThrowsMessage<DoesNotFit>(HasSubstr("memory is used up: stop other programs")));
}

TEST(FilesErrors, JsonPosition) {
  TempFolder folder;
  write_text(folder / "x.json", "{\"a\": [1,\n 2,,]}");
  EXPECT_THAT(user_error([&] { read_json_file(folder / "x.json"); }),
              HasSubstr("x.json: is not valid JSON: syntax error at line 2, column 4, at `,]}`"));
  write_text(folder / "x.json", "{\"a\": 1e999}");
  EXPECT_THAT(user_error([&] { read_json_file(folder / "x.json"); }), HasSubstr("a number is too large"));
}

}  // namespace
}  // namespace fettle
