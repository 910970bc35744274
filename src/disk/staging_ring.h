// Defines StagingRing: memory for blocks that are read from a disk, changed, and written back in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

namespace fettle {

inline constexpr int64_t kDiskBlock = 4096;  // direct I/O needs addresses, offsets and sizes in multiples of this
constexpr int64_t in_disk_blocks(int64_t bytes) {
  return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

// A ring of host memory, aligned to kDiskBlock. The piece that was taken first is given back first.
class StagingRing {
 public:
  // Reserves addresses for `bytes` bytes. The system provides the memory when it is first written. Throws DoesNotFit
  // when the addresses cannot be reserved.
  explicit StagingRing(int64_t bytes);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  int64_t bytes() const { return bytes_; }
  // Takes a contiguous piece of `bytes` bytes, rounded up to whole disk blocks. Returns nullopt when there is no room
  // now. A piece of at most bytes() always has room when nothing is taken.
  std::optional<std::span<std::byte>> take(int64_t bytes);
  void give_back_oldest();

 private:
  struct Piece {
    int64_t start, bytes;
  };
  std::byte* memory_ = nullptr;
  int64_t bytes_;
  std::deque<Piece> taken_;
};

}  // namespace fettle
