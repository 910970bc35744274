// Defines MemoryPool, which allocates large blocks in huge pages and uses the pages again after a block is freed.
//
// A training step on the CPU allocates the same large blocks as the step before it. The C library returns freed blocks
// to the operating system, which must then clear each page again. Clearing takes a sixth of a step's time. The pool
// keeps freed blocks for the next step, in huge pages if the system has them. It keeps at most as much memory as its
// blocks used at their peak.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace fettle {

// Thread-safe. A forked child must not use the pool before exec, because another thread may have held the lock.
class MemoryPool {
 public:
  // Reserves `reserve` bytes of addresses, not memory. If this fails, every allocate() returns null.
  explicit MemoryPool(size_t reserve);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Returns a block aligned to `alignment`, a power of two up to 64 KiB. Returns null when no free range is large
  // enough or the operating system refuses memory.
  //
  // A plugin reports the end of a step, and frees the step's temporaries shortly afterwards. The next step may allocate
  // in between. So allocate() waits up to 50 ms for another thread to free a block. It waits only if the requested
  // block is large, is not the first of its size, and would raise Use::most.
  void* allocate(size_t bytes, size_t alignment);
  // Returns whether `block` comes from this pool.
  bool owns(const void* block) const { return static_cast<size_t>(static_cast<const char*>(block) - base_) < reserve_; }
  void release(void* block);
  size_t size_of(const void* block) const;

  struct Use {
    size_t blocks;  // bytes of the blocks in use
    size_t most;    // the largest value of `blocks` so far
    size_t held;    // bytes of all pages that take memory, including pages of free blocks
  };
  Use use() const;

 private:
  size_t offset_of(const void* block) const { return static_cast<size_t>(static_cast<const char*>(block) - base_); }
  void await_release(std::unique_lock<std::mutex>& lock, size_t size);
  bool open(size_t end);
  void add_free(size_t offset, size_t size);
  void drop_free(size_t offset, size_t size);
  void touch(size_t offset, size_t size);
  void return_pages(size_t limit);

  char* base_ = nullptr;
  size_t reserve_ = 0, opened_ = 0;  // [0, opened_) can be read and written
  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::set<size_t> large_;                       // sizes of large blocks so far
  std::map<size_t, size_t> free_, taken_;        // sizes by offset
  std::set<std::pair<size_t, size_t>> by_size_;  // (size, offset) of each free range
  std::vector<bool> held_pages_;                 // for each huge page, whether it takes memory
  Use use_{};
};

}  // namespace fettle
