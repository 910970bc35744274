// Defines DeviceBuffer: one global array lying on the devices of a mesh.
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

// Writes the dense row-major bytes of `box` to `out`, which holds box.elements() elements and is 64-byte aligned.
// Called once for each distinct box, one after another; replicas get the same bytes.
using FillBox = std::function<void(const Box& box, std::byte* out)>;

// Owns one PJRT buffer a device. Move-only. Destroying one while a run still reads it is safe (the plugin holds on).
// A const buffer may be read from several threads; run() with it donated must be the only use.
//
// Host memory: upload() has copied or taken over what it needs when it returns; the caller's array is free at once.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;  // empty: no devices
  // Puts each device's box of `global` onto it. memory_kind as in ArgInfo.
  static DeviceBuffer upload(const Client& client, const HostArray& global, Layout layout,
                             const std::string& memory_kind = "");
  // The same with bytes made box by box, so that no global array need exist on the host.
  static DeviceBuffer upload(const Client& client, const Shape& shape, Layout layout, const FillBox& fill,
                             const std::string& memory_kind = "");
  static DeviceBuffer zeros(const Client& client, const Shape& shape, Layout layout,
                            const std::string& memory_kind = "");

  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;
  ~DeviceBuffer();

  const Shape& shape() const { return shape_; }  // global
  const Layout& layout() const { return layout_; }
  const std::string& memory_kind() const { return memory_kind_; }
  bool empty() const { return shards_.empty(); }
  // True once a run took the memory (donation) or release() was called; any other use then throws InternalError.
  bool is_deleted() const;
  // Frees the device memory now.
  void release();
  // Waits until the bytes are there. Throws DeviceError with the error of the run that was to make them.
  void wait() const;

  // Waits, then gathers the global array from one device of each distinct box.
  HostArray download() const;
  // Waits, then reads the box of the mesh's i-th device.
  HostArray download_shard(int position) const;

  // The rest is for this folder only.
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
  std::vector<PJRT_Buffer*> shards_;      // one a device of the layout
  std::shared_ptr<const Launch> launch_;  // the run that makes the bytes; null for uploads
};

}  // namespace fettle
