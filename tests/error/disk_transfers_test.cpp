// Tests the messages for disks that fail.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "disk/local_disk.h"
#include "disk/scratch_file.h"
#include "disk/staging_ring.h"
#include "disk/transfer_queue.h"
#include "environment.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TransferError : public testing::TestWithParam<DiskEngine> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskEngine::kUring && choose_disk_engine() != DiskEngine::kUring)
      GTEST_SKIP() << "the kernel refuses io_uring";
  }
  StagingRing memory_{4 << 20};
  std::span<std::byte> bytes_ = *memory_.take(4 << 20);
};

INSTANTIATE_TEST_SUITE_P(Engines, TransferError, testing::Values(DiskEngine::kUring, DiskEngine::kThreads),
                         [](const auto& info) { return info.param == DiskEngine::kUring ? "uring" : "pread"; });

TEST_P(TransferError, AFileThatEndsEarly) {
  TempFolder folder;
  const ScratchFile file(folder.path(), 4 << 20, "the test");
  ASSERT_EQ(ftruncate(file.descriptor(), 1 << 20), 0);
  TransferQueue queue(file.descriptor(), "offload_dir: /scratch", GetParam());
  EXPECT_THAT(user_error([&] { queue.wait(queue.read(0, bytes_)); }),
              AllOf(HasSubstr("offload_dir: /scratch: cannot read the offloaded state, at byte "),
                    HasSubstr("the file ends there"), HasSubstr("resume_from_checkpoint=true")));
  queue.wait(queue.read(0, bytes_.first(1 << 20)));  // later transfers work
}

TEST_P(TransferError, AFullDisk) {
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_GE(full, 0);
  TransferQueue queue(full, "offload_dir: /scratch", GetParam());
  try {
    queue.wait(queue.write(0, bytes_));
    FAIL() << "no error";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("offload_dir: /scratch: cannot write"), HasSubstr("No space left"),
                                    HasSubstr("checkpoints are not affected"), HasSubstr("free some space")));
  }
  close(full);
}

TEST_P(TransferError, AFileThatCannotBeWritten) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  TransferQueue queue(fd, "offload_dir: /scratch", GetParam());
  EXPECT_THAT(user_error([&] { queue.wait(queue.write(0, bytes_)); }), HasSubstr("Bad file descriptor"));
  close(fd);
}

// A lasting error of the ring fails all transfers. Without that, the wait would never end.
TEST(RingError, LastsForAllTransfers) {
  if (choose_disk_engine() != DiskEngine::kUring) GTEST_SKIP() << "the kernel refuses io_uring";
  TempFolder folder;
  const ScratchFile file(folder.path(), 4 << 20, "the test");
  StagingRing memory(4 << 20);
  const std::span<std::byte> bytes = *memory.take(4 << 20);
  TransferQueue queue(file.descriptor(), "offload_dir: /scratch", DiskEngine::kUring);
  queue.wait(queue.write(0, bytes));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[io_uring]")
      close(std::stoi(entry.path().filename().string()));
  }
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(user_error([&] { queue.wait(queue.read(0, bytes)); }), HasSubstr("Bad file descriptor"));
}

TEST(ScratchFileError, MoreThanTheDiskHas) {
  TempFolder folder;
  try {
    const ScratchFile file(folder.path(), int64_t{1} << 60, "offload_dir");
    FAIL() << "no error";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder.path().string()), HasSubstr("offload_dir needs 1152921"),
                                    HasSubstr("are free"), HasSubstr("choose another disk")));
  }
}

TEST(LocalDisk, OtherFileSystemsAreRefused) {
  EXPECT_EQ(not_a_local_disk(0xef53), "");  // the type of ext4
  EXPECT_EQ(not_a_local_disk(0x6969), "a network file system (NFS)");
  EXPECT_EQ(not_a_local_disk(static_cast<int32_t>(0xff534d42)), "a network file system (SMB)");  // a negative number
  struct statfs memory {};
  if (statfs("/dev/shm", &memory) != 0 || memory.f_type != 0x01021994) GTEST_SKIP() << "/dev/shm is not a tmpfs";
  EXPECT_THAT(user_error([] { require_local_disk("/dev/shm", "tune.yaml:7"); }),
              AllOf(HasSubstr("tune.yaml:7: offload_dir: /dev/shm is on a file system in memory"),
                    HasSubstr("choose a folder on a local disk")));
}

TEST(ScratchFileError, AFolderThatCannotBeMade) {
  TempFolder folder;
  write_text(folder / "file", "");
  EXPECT_THAT(user_error([&] { ScratchFile(folder / "file" / "state", kDiskBlock, "offload_dir"); }),
              AllOf(HasSubstr("file/state"), HasSubstr("Not a directory")));
}

TEST(DiskEngineError, AnUnknownEngine) {
  const Environment forced("FETTLE_DISK_IO", "aio");
  EXPECT_THAT(user_error([] { choose_disk_engine(); }),
              AllOf(HasSubstr("FETTLE_DISK_IO is 'aio'"), HasSubstr("uring or pread")));
}

}  // namespace
}  // namespace fettle
