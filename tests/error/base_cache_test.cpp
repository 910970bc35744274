// Tests where the cache is, who may use it, and which files in it count as safe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/cache.h"
#include "base/files/private_files.h"
#include "environment.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST(CacheFolder, IsBelowFettleCacheElseBelowHome) {
  const Environment home("HOME", "/home/someone");
  {
    const Environment cache("FETTLE_CACHE", "/var/fettle");
    EXPECT_EQ(cache_folder("rows"), "/var/fettle/rows");
  }
  for (const auto& unset : {std::optional<std::string>(), std::optional<std::string>("")}) {
    const Environment cache("FETTLE_CACHE", unset);
    EXPECT_EQ(cache_folder("rows"), "/home/someone/.cache/fettle/rows");
  }
}

TEST(CacheFolder, IsNeverBelowTheWorkingDirectory) {
  const Environment cache("FETTLE_CACHE", std::nullopt);
  {
    const Environment home("HOME", std::nullopt);
    EXPECT_FALSE(find_cache().has_value());
    EXPECT_THAT(user_error([] { cache_folder("compiled"); }),
                AllOf(HasSubstr("neither FETTLE_CACHE nor HOME is set"), HasSubstr("set FETTLE_CACHE to a folder")));
  }
  {
    const Environment home("HOME", "");
    EXPECT_NE(user_error([] { cache_folder("compiled"); }), "no error");
  }
  {
    const Environment home("HOME", ".");
    EXPECT_THAT(user_error([] { cache_folder("compiled"); }), HasSubstr("HOME is '.', wanted an absolute path"));
  }
  const Environment relative("FETTLE_CACHE", "some/folder");
  EXPECT_THAT(user_error([] { cache_folder("compiled"); }), HasSubstr("FETTLE_CACHE is 'some/folder', wanted"));
}

TEST(CacheFolder, OneThatCannotBeWrittenNamesTheVariable) {
  const TempFolder folder;
  require_writable(folder / "new/gguf");
  EXPECT_TRUE(fs::is_directory(folder / "new/gguf"));
  EXPECT_THAT(user_error([] { require_writable("/proc/fettle/gguf"); }),
              AllOf(HasSubstr("/proc/fettle/gguf"), HasSubstr("set FETTLE_CACHE to a folder")));
}

TEST(PrivateFolder, OnlyThisUserMayEnterWhatIsMade) {
  const TempFolder folder;
  chmod(folder.path().c_str(), 0755);
  const mode_t before = umask(0);
  EXPECT_TRUE(make_private_folder(folder / "a/b/c"));
  umask(before);
  for (const char* made : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(folder / made), 0700u) << made;
  EXPECT_EQ(mode_of(folder.path()), 0755u) << "existing folders stay as they are";
  EXPECT_TRUE(make_private_folder(folder / "a/b")) << "it is there already";
  write_text(folder / "file", "");
  EXPECT_FALSE(make_private_folder(folder / "file"));
  EXPECT_FALSE(make_private_folder(folder / "file/below"));
}

class Distrust : public testing::Test {
 protected:
  Distrust() {
    make_private_folder(place_);
    write_text(file_, "code");
    chmod(file_.c_str(), 0644);
  }
  void expect_says(const fs::path& path, const std::string& remedy) {
    EXPECT_THAT(distrust(file_), AllOf(testing::StartsWith(path.string() + " "), HasSubstr(remedy)));
  }

  TempFolder folder_;
  fs::path place_ = folder_ / "place", file_ = place_ / "x.so";
};

TEST_F(Distrust, OwnFilesAreSafe) {
  EXPECT_EQ(distrust(file_), "");
  EXPECT_EQ(distrust("/bin/sh"), "") << "root's";
  EXPECT_EQ(distrust(folder_ / "missing"), "");
}

TEST_F(Distrust, FilesThatOthersMayWriteAreNot) {
  for (const mode_t mode : {0664, 0646, 0666}) {
    chmod(file_.c_str(), mode);
    expect_says(file_, "chmod go-w " + file_.string());
  }
}

TEST_F(Distrust, FilesInFoldersThatOthersMayWriteAreNot) {
  chmod(place_.c_str(), 0775);
  expect_says(place_, "chmod go-w " + place_.string());
}

TEST_F(Distrust, LinksAreFollowedAndTheirFolderCounts) {
  const fs::path open = folder_ / "open";
  make_private_folder(open);
  fs::create_symlink(file_, open / "link.so");
  EXPECT_EQ(distrust(open / "link.so"), "");
  chmod(file_.c_str(), 0666);
  EXPECT_THAT(distrust(open / "link.so"), HasSubstr(file_.string()));
  chmod(file_.c_str(), 0600);
  chmod(open.c_str(), 0777);
  EXPECT_THAT(distrust(open / "link.so"), HasSubstr(open.string()));
}

TEST_F(Distrust, OtherUsersFilesAreNotSafe) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  expect_says(file_, "chown 0 " + file_.string());
  ASSERT_EQ(chown(file_.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(place_.c_str(), 12345, 12345), 0);
  expect_says(place_, "belongs to user 12345");
}

}  // namespace
}  // namespace fettle
