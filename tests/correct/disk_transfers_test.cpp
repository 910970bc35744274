// Tests reading and writing a scratch file in the background, and the ring of memory for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "disk/scratch_file.h"
#include "disk/staging_ring.h"
#include "disk/transfer_queue.h"
#include "environment.h"
#include "temp_folder.h"

namespace fettle {
namespace {

class Transfers : public testing::TestWithParam<DiskEngine> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskEngine::kUring && choose_disk_engine() != DiskEngine::kUring)
      GTEST_SKIP() << "the kernel refuses io_uring";
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, Transfers, testing::Values(DiskEngine::kUring, DiskEngine::kThreads),
                         [](const auto& info) { return info.param == DiskEngine::kUring ? "uring" : "pread"; });

// Blocks of many sizes are written in one order and read in another order, many at a time.
TEST_P(Transfers, BytesComeBack) {
  constexpr int64_t kBlocks = 40;
  TempFolder folder;
  std::mt19937 random(7);
  std::vector<int64_t> sizes, offsets;
  int64_t total = 0;
  for (int64_t i = 0; i < kBlocks; ++i) {
    offsets.push_back(total);
    sizes.push_back((1 + random() % 700) * kDiskBlock);  // up to 2.9 MB, so some take several requests
    total += sizes.back();
  }
  const ScratchFile file(folder.path(), total, "the test");
  StagingRing from(total), to(total);
  const std::span<std::byte> wanted = *from.take(total), got = *to.take(total);
  for (std::byte& byte : wanted) byte = static_cast<std::byte>(random());
  TransferQueue queue(file.descriptor(), "the test", GetParam());
  std::vector<TransferQueue::Ticket> tickets;
  auto part = [&](std::span<std::byte> bytes, size_t i) {
    return bytes.subspan(static_cast<size_t>(offsets[i]), static_cast<size_t>(sizes[i]));
  };
  for (size_t i = 0; i < kBlocks; ++i) tickets.push_back(queue.write(offsets[i], part(wanted, i)));
  for (const auto& ticket : tickets) queue.wait(ticket);
  tickets.clear();
  for (size_t i = kBlocks; i-- > 0;) tickets.push_back(queue.read(offsets[i], part(got, i)));
  for (const auto& ticket : tickets) queue.wait(ticket);
  EXPECT_TRUE(std::ranges::all_of(tickets, [&](const auto& ticket) { return queue.done(ticket); }));
  EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size()), 0);
}

// An exception may destroy the queue while transfers run. So its destructor waits for all transfers.
TEST_P(Transfers, TheEndWaitsForAllTransfers) {
  constexpr int64_t kBytes = 64 << 20;
  TempFolder folder;
  const ScratchFile file(folder.path(), kBytes, "the test");
  StagingRing memory(kBytes);
  const std::span<std::byte> bytes = *memory.take(kBytes);
  std::memset(bytes.data(), 7, bytes.size());
  { TransferQueue(file.descriptor(), "the test", GetParam()).write(0, bytes); }
  std::memset(bytes.data(), 0, bytes.size());
  TransferQueue queue(file.descriptor(), "the test", GetParam());
  queue.wait(queue.read(0, bytes));
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{7}; }));
}

TEST(ScratchFile, StartsWithZerosAndHasNoName) {
  TempFolder folder;
  write_text(folder / ".fettle-offload-123-0", "");  // left by a process that was killed
  write_text(folder / "mine", "");
  const ScratchFile file(folder.path(), kDiskBlock, "the test");
  StagingRing memory(kDiskBlock);
  const std::span<std::byte> bytes = *memory.take(kDiskBlock);
  std::memset(bytes.data(), 7, bytes.size());
  TransferQueue queue(file.descriptor(), "the test", DiskEngine::kThreads);
  queue.wait(queue.read(0, bytes));
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("mine"));
}

// Takes and gives back pieces at random, and keeps a list of the pages that are taken.
TEST(StagingRing, PiecesNeverOverlapAndUseTheWholeMemory) {
  constexpr int64_t kPages = 16;
  StagingRing ring(kPages * kDiskBlock);
  std::byte* const start = ring.take(kDiskBlock)->data();
  ring.give_back_oldest();
  std::mt19937 random(5);
  std::deque<std::pair<int64_t, int64_t>> taken;  // first page and number of pages
  int64_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 3 == 0 && !taken.empty()) {
      ring.give_back_oldest();
      taken.pop_front();
      continue;
    }
    const int64_t pages = 1 + random() % 6;
    const auto piece = ring.take(pages * kDiskBlock - random() % 100);
    ASSERT_TRUE(piece || !taken.empty());
    if (!piece) continue;
    const int64_t first = (piece->data() - start) / kDiskBlock;
    ASSERT_EQ((piece->data() - start) % kDiskBlock, 0);
    ASSERT_TRUE(first >= 0 && first + pages <= kPages);
    for (const auto& [other, count] : taken) ASSERT_TRUE(first + pages <= other || other + count <= first);
    taken.push_back({first, pages});
    int64_t sum = 0;
    for (const auto& one : taken) sum += one.second;
    most = std::max(most, sum);
  }
  EXPECT_EQ(most, kPages);
}

TEST(DiskEngine, TheVariableDecides) {
  const Environment forced("FETTLE_DISK_IO", "pread");
  EXPECT_EQ(choose_disk_engine(), DiskEngine::kThreads);
}

}  // namespace
}  // namespace fettle
