#include "runtime/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace fettle {
namespace {

constexpr size_t kUnit = size_t{64} << 10;  // sizes and offsets of blocks are multiples of kUnit
constexpr size_t kPage = size_t{2} << 20;   // a huge page
// Allocating a block of at least this size may wait until another block is freed. The temporaries of a small model's
// step take 20 to 30 MB.
constexpr size_t kWaits = size_t{16} << 20;

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

MemoryPool::MemoryPool(size_t reserve) {
  reserve = round_up(reserve, kPage);
  void* const mapped = mmap(nullptr, reserve + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  base_ = static_cast<char*>(mapped) + (round_up(start, kPage) - start);
  reserve_ = reserve;
  add_free(0, reserve);
}

// The destructor does not unmap the unaligned ends of the mapping. Together they have the size of one huge page.
MemoryPool::~MemoryPool() {
  if (reserve_ > 0) munmap(base_, reserve_);
}

bool MemoryPool::open(size_t end) {
  if (end <= opened_) return true;
  const size_t up_to = round_up(end, kPage);
  if (mprotect(base_ + opened_, up_to - opened_, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(base_ + opened_, up_to - opened_, MADV_HUGEPAGE);  // failure is harmless: the pages are then small
  opened_ = up_to;
  held_pages_.resize(opened_ / kPage, false);
  return true;
}

void MemoryPool::add_free(size_t offset, size_t size) {
  const auto after = free_.lower_bound(offset);
  if (after != free_.end() && offset + size == after->first) {
    const size_t more = after->second;
    drop_free(offset + size, more);
    size += more;
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto [before, length] = *std::prev(next);
    if (before + length == offset) {
      drop_free(before, length);
      offset = before;
      size += length;
    }
  }
  free_[offset] = size;
  by_size_.emplace(size, offset);
}

void MemoryPool::drop_free(size_t offset, size_t size) {
  free_.erase(offset);
  by_size_.erase({size, offset});
}

void MemoryPool::touch(size_t offset, size_t size) {
  for (size_t page = offset / kPage; page * kPage < offset + size; ++page) {
    if (held_pages_[page]) continue;
    held_pages_[page] = true;
    use_.held += kPage;
  }
}

// Returns free pages to the operating system, the last ones first, until the pool's pages take at most `limit` bytes.
void MemoryPool::return_pages(size_t limit) {
  for (auto range = free_.rbegin(); range != free_.rend() && use_.held > limit; ++range) {
    const size_t first = round_up(range->first, kPage) / kPage;
    const size_t end = std::min(range->first + range->second, opened_) / kPage;
    for (size_t page = end; page > first && use_.held > limit; --page) {
      if (!held_pages_[page - 1] || madvise(base_ + (page - 1) * kPage, kPage, MADV_DONTNEED) != 0) continue;
      held_pages_[page - 1] = false;
      use_.held -= kPage;
    }
  }
}

void MemoryPool::await_release(std::unique_lock<std::mutex>& lock, size_t size) {
  if (size < kWaits || large_.insert(size).second) return;
  released_.wait_for(lock, std::chrono::milliseconds(50), [&] { return use_.blocks + size <= use_.most; });
}

// Takes the smallest free range that is large enough. The choice depends only on the sizes and the free ranges. So if a
// step makes the same requests as the previous step, the blocks get the same addresses and pages.
void* MemoryPool::allocate(size_t bytes, size_t alignment) {
  if (alignment > kUnit || bytes == 0 || bytes > reserve_) return nullptr;
  const size_t size = round_up(bytes, kUnit);
  std::unique_lock lock(mutex_);
  await_release(lock, size);
  const auto found = by_size_.lower_bound({size, 0});
  if (found == by_size_.end()) return nullptr;
  const auto [length, offset] = *found;
  if (!open(offset + size)) return nullptr;
  drop_free(offset, length);
  if (length > size) add_free(offset + size, length - size);
  taken_[offset] = size;
  use_.blocks += size;
  use_.most = std::max(use_.most, use_.blocks);
  touch(offset, size);
  return_pages(round_up(use_.most, kPage));
  return base_ + offset;
}

void MemoryPool::release(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(offset_of(block));
  if (found == taken_.end()) return;
  const auto [offset, size] = *found;
  taken_.erase(found);
  use_.blocks -= size;
  add_free(offset, size);
  if (size < kWaits) return;
  released_.notify_all();
}

size_t MemoryPool::size_of(const void* block) const {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(offset_of(block));
  return found == taken_.end() ? 0 : found->second;
}

MemoryPool::Use MemoryPool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace fettle
