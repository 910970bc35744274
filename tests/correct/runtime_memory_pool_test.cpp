// Tests the pool of large blocks: alignment, reuse of the same pages, and a limit on the memory that it keeps.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/memory_pool.h"

namespace fettle {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(MemoryPool, GivesAlignedBlocksThatDoNotOverlap) {
  MemoryPool pool(64 * kMiB);
  std::vector<char*> blocks;
  for (int i = 0; i < 5; ++i) {
    blocks.push_back(static_cast<char*>(pool.allocate(kMiB + 1000 * i, 4096)));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 4096, 0U);
    EXPECT_TRUE(pool.owns(blocks.back()));
    EXPECT_GE(pool.size_of(blocks.back()), kMiB + 1000 * i);
    std::memset(blocks.back(), i, kMiB + 1000 * i);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(blocks[i][0], i);
    EXPECT_EQ(blocks[i][kMiB], i == 0 ? blocks[i][kMiB] : i);
    pool.release(blocks[i]);
  }
  EXPECT_EQ(pool.use().blocks, 0U);
}

TEST(MemoryPool, UsesTheSamePagesAgain) {
  MemoryPool pool(64 * kMiB);
  void* const first = pool.allocate(8 * kMiB, 64);
  std::memset(first, 1, 8 * kMiB);
  pool.release(first);
  const auto* const second = static_cast<const char*>(pool.allocate(8 * kMiB, 64));
  EXPECT_EQ(second, first);
  EXPECT_EQ(second[5 * kMiB], 1);  // a fresh page would contain 0
}

TEST(MemoryPool, HoldsNoMoreThanTheBlocksAtTheirMost) {
  MemoryPool pool(256 * kMiB);
  std::vector<void*> small;
  for (int i = 0; i < 8; ++i) small.push_back(pool.allocate(2 * kMiB, 64));
  for (void* block : small) pool.release(block);
  EXPECT_EQ(pool.use().held, 16 * kMiB);
  // Blocks of other sizes need some fresh pages. In exchange, the pool gives pages at other addresses back to the
  // system.
  void* const keeps = pool.allocate(2 * kMiB, 64);
  void* const large = pool.allocate(15 * kMiB, 64);
  const MemoryPool::Use use = pool.use();
  EXPECT_EQ(use.most, 17 * kMiB);
  EXPECT_LE(use.held, 18 * kMiB);
  pool.release(large);
  pool.release(keeps);
  void* const tail = pool.allocate(40 * kMiB, 64);
  EXPECT_LE(pool.use().held, 40 * kMiB);
  pool.release(tail);
}

TEST(MemoryPool, ReturnsPagesWhenOthersAreNeeded) {
  MemoryPool pool(256 * kMiB);
  void* const a = pool.allocate(20 * kMiB, 64);
  void* const fence = pool.allocate(2 * kMiB, 64);
  pool.release(a);
  void* const b = pool.allocate(22 * kMiB, 64);  // does not fit into the free range before `fence`
  EXPECT_LE(pool.use().held, 24 * kMiB);
  pool.release(b);
  pool.release(fence);
  // All free ranges have been joined into one again.
  void* const all = pool.allocate(256 * kMiB, 64);
  EXPECT_NE(all, nullptr);
  pool.release(all);
}

TEST(MemoryPool, HasNoRoomForWhatItCannotHold) {
  MemoryPool pool(8 * kMiB);
  EXPECT_EQ(pool.allocate(9 * kMiB, 64), nullptr);
  EXPECT_EQ(pool.allocate(kMiB, kMiB), nullptr);
  int other;
  EXPECT_FALSE(pool.owns(&other));
  EXPECT_FALSE(pool.owns(nullptr));
  void* const all = pool.allocate(8 * kMiB, 64);
  EXPECT_NE(all, nullptr);
  EXPECT_EQ(pool.allocate(kMiB, 64), nullptr);
  pool.release(all);
}

// The temporaries of a step are freed just after the next step has requested its own.
TEST(MemoryPool, WaitsForABlockThatIsAboutToBeFreed) {
  for (const size_t size : {40 * kMiB, 20 * kMiB}) {
    MemoryPool pool(256 * kMiB);
    void* const first = pool.allocate(size, 64);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pool.release(first);
    });
    void* const second = pool.allocate(size, 64);
    other.join();
    EXPECT_EQ(second, first);
    EXPECT_EQ(pool.use().most, size);
    void* const third = pool.allocate(size, 64);  // no block is freed while the pool waits
    EXPECT_NE(third, nullptr);
    pool.release(second);
    pool.release(third);
  }
}

TEST(MemoryPool, IsSharedByThreads) {
  MemoryPool pool(256 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = kMiB + static_cast<size_t>(i % 7) * 300'000;
        auto* const block = static_cast<char*>(pool.allocate(bytes, 64));
        ASSERT_NE(block, nullptr);
        block[0] = block[bytes - 1] = static_cast<char>(t);
        std::this_thread::yield();
        EXPECT_EQ(block[0], t);
        EXPECT_EQ(block[bytes - 1], t);
        pool.release(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.use().blocks, 0U);
  EXPECT_LE(pool.use().held, pool.use().most + 2 * kMiB);
}

}  // namespace
}  // namespace fettle
