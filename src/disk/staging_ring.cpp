#include "disk/staging_ring.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/size_text.h"

namespace fettle {

StagingRing::StagingRing(int64_t bytes) : bytes_(in_disk_blocks(std::max<int64_t>(bytes, 1))) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw DoesNotFit("offload_dir needs {} of host memory to read and write the disk: {}; free some memory",
                     size_text(bytes_), std::strerror(errno));
  // With huge pages, the kernel pins fewer pages. If this call fails, the pages are small.
  madvise(memory, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
}

StagingRing::~StagingRing() {
  munmap(memory_, static_cast<size_t>(bytes_));
}

std::optional<std::span<std::byte>> StagingRing::take(int64_t bytes) {
  bytes = in_disk_blocks(bytes);
  internal_check(bytes <= bytes_, "StagingRing: a piece of {} bytes in a ring of {}", bytes, bytes_);
  int64_t start = 0;
  if (!taken_.empty()) {
    const int64_t end = taken_.back().start + taken_.back().bytes, oldest = taken_.front().start;
    const bool wrapped = taken_.back().start < oldest;
    if ((wrapped ? oldest : bytes_) - end >= bytes)
      start = end;
    else if (wrapped || oldest < bytes)
      return std::nullopt;
  }
  taken_.push_back({start, bytes});
  return std::span(memory_ + start, static_cast<size_t>(bytes));
}

void StagingRing::give_back_oldest() {
  internal_check(!taken_.empty(), "StagingRing: nothing is taken");
  taken_.pop_front();
}

}  // namespace fettle
