// Defines BufferBuilder, which fills a large device array in pieces, so that it needs little host memory.
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

// The caller writes byte ranges of the array's distinct boxes, in any order. For example, a stacked [L, ...] weight is
// written layer by layer from mapped files.
//
// On the CPU, write() writes straight into the array's memory. Replicas share one block of memory. If an array with
// replicas is donated to a program, the program writes its result to other memory. On GPUs, at most kStagingLimit bytes
// of host memory are used. For unknown vendors, host memory holds all boxes until finish() (Vendor::staging,
// vendors/vendor.h). Several threads may call write() at once for ranges that do not overlap.
class BufferBuilder {
 public:
  static constexpr int64_t kStagingLimit = int64_t{64} << 20;

  BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind = "");
  // Uses `staging` instead of the vendor's default.
  BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind,
                Staging staging, int64_t staging_limit);
  ~BufferBuilder();
  BufferBuilder(BufferBuilder&&) noexcept;
  BufferBuilder& operator=(BufferBuilder&&) noexcept;

  // Returns the distinct boxes on this process's devices. The caller writes each box once, even if several devices hold
  // it.
  const std::vector<Box>& parts() const;
  // Copies `bytes` to byte `offset` of box number `part` (dense, row-major). The caller may reuse the memory of `bytes`
  // when write() returns.
  void write(int part, int64_t offset, std::span<const std::byte> bytes);
  // Returns the array. Throws InternalError if some bytes of a part were not written.
  DeviceBuffer finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace fettle
