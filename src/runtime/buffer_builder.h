// Defines BufferBuilder: makes a large device array from pieces, with little host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

class Client;

// Builds a DeviceBuffer by writing byte ranges of its distinct boxes, in any order: a stacked [L, ...] weight layer by
// layer, straight from mapped files.
//
// Host memory beyond the caller's own: on the CPU none but the array itself (the memory written is the device's,
// 64-byte aligned, donatable; replicas share it until one is donated). On GPUs at most kStagingLimit bytes (Staging in
// vendors.h says which way a vendor goes). write() may be called from several threads for ranges that do not overlap.
class BufferBuilder {
 public:
  static constexpr int64_t kStagingLimit = int64_t{64} << 20;

  BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind = "");
  // With another way of staging than the vendor's.
  BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind,
                Staging staging, int64_t staging_limit);
  ~BufferBuilder();
  BufferBuilder(BufferBuilder&&) noexcept;
  BufferBuilder& operator=(BufferBuilder&&) noexcept;

  // The distinct boxes, each written once however many devices hold it.
  const std::vector<Box>& parts() const;
  // Copies `bytes` to byte offset `offset` of box `part` (dense, row-major). The caller's bytes are free on return.
  void write(int part, int64_t offset, std::span<const std::byte> bytes);
  // Hands over. Throws InternalError unless every byte of every part was written (counted, so ranges must not overlap).
  DeviceBuffer finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace fettle
