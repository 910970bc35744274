// Defines DeviceBuffer: one global array that is spread over the devices of a mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/arrays/host_array.h"
#include "base/arrays/shape.h"
#include "runtime/signature.h"

struct PJRT_Buffer;

namespace fettle {

class Client;
class Launch;
struct ClientHandle;

// A function that writes the elements of `box` to `out`, dense and row-major. `out` has room for them.
using FillBox = std::function<void(const Box& box, std::byte* out)>;

// Owns one PJRT buffer for each of this process's devices in the layout. Move-only. A buffer may be destroyed while a
// program still reads it: the plugin keeps the memory until the program has ended. Several threads may read a const
// buffer. While a program uses the buffer as a donated argument, nothing else may use the buffer.
//
// The caller may change or free the uploaded host array as soon as upload() returns.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;  // a buffer on no device
  // Copies the box of each device from `global` to that device. For memory_kind see ArgInfo.
  static DeviceBuffer upload(const Client& client, const HostArray& global, Layout layout,
                             const std::string& memory_kind = "");
  // Makes the array without a host array of all elements. Calls `fill` once for each distinct box on this process's
  // devices, on the calling thread. `out` is aligned to 64 bytes. Replicas get the same bytes. During the call, host
  // memory holds all these boxes. BufferBuilder needs less host memory.
  static DeviceBuffer upload(const Client& client, const Shape& shape, Layout layout, const FillBox& fill,
                             const std::string& memory_kind = "");
  static DeviceBuffer zeros(const Client& client, const Shape& shape, Layout layout,
                            const std::string& memory_kind = "");

  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;
  ~DeviceBuffer();

  const Shape& shape() const { return shape_; }  // the global shape
  const Layout& layout() const { return layout_; }
  const std::string& memory_kind() const { return memory_kind_; }
  bool empty() const { return shards_.empty(); }
  // Returns true if the buffer is empty, was donated to a program, or was released with release(). Waiting for such a
  // buffer, downloading it or passing it to a program throws InternalError.
  bool is_deleted() const;
  // Frees the device memory now.
  void release();
  // Waits until the array's bytes are on the device. Throws DeviceError when the program that computes them failed.
  void wait() const;

  // Waits like wait(), then copies the global array to the host. Takes each distinct box from one device. Throws
  // InternalError when a box is only on devices of other processes.
  HostArray download() const;
  // Returns whether the device at this position in the layout belongs to this process.
  bool is_local(int position) const { return shards_[static_cast<size_t>(position)] != nullptr; }
  // Waits like wait(), then copies the box at this position in the layout to the host. The device must belong to this
  // process.
  HostArray download_shard(int position) const;
  // Waits like wait(), then copies the box at this position to `out`. The box has `bytes` bytes, and `out` has room for
  // them.
  void download_shard(int position, std::byte* out, int64_t bytes) const;

  // The following members are only for code in src/runtime.
  DeviceBuffer(std::shared_ptr<const ClientHandle> client, Shape shape, Layout layout, std::string memory_kind,
               std::vector<PJRT_Buffer*> shards, std::shared_ptr<const Launch> launch);
  PJRT_Buffer* shard(int position) const { return shards_[position]; }
  void add_shard(PJRT_Buffer* shard) { shards_.push_back(shard); }
  const std::shared_ptr<const ClientHandle>& client() const { return client_; }

 private:
  void read_shard(int position, std::byte* out, int64_t bytes) const;
  void require_alive(const char* use) const;
  std::shared_ptr<const ClientHandle> client_;
  Shape shape_;
  Layout layout_;
  std::string memory_kind_;
  std::vector<PJRT_Buffer*> shards_;      // one per device of the layout; null for devices of other processes
  std::shared_ptr<const Launch> launch_;  // the execution that produces the bytes; null for uploads
};

}  // namespace fettle
