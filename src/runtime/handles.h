// Defines the types that buffers and executables share: the client's handle, a launch (one execution of a program), and
// host memory that the plugin uses. Only for .cpp files of src/runtime.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/client.h"
#include "runtime/pjrt.h"

namespace fettle {

// Owns the PJRT_Client. Everything made from the client shares this handle, so the client is destroyed last.
struct ClientHandle {
  ClientHandle(std::shared_ptr<const Plugin> plugin, PJRT_Client* client) : plugin(std::move(plugin)), client(client) {}
  ~ClientHandle();
  ClientHandle(const ClientHandle&) = delete;
  ClientHandle& operator=(const ClientHandle&) = delete;

  const PJRT_Api& api() const { return plugin->api(); }
  int ordinal_of(const PJRT_Device* device) const;  // throws InternalError for a device of another client
  // Returns the memories that the device can use, with their kinds.
  std::vector<std::pair<std::string, PJRT_Memory*>> memories(int ordinal) const;
  // Returns the device's memory of this kind. Returns null for "" and "device", which mean the default memory. Throws
  // DeviceError, which lists the kinds, when the device has no such memory.
  PJRT_Memory* memory(int ordinal, const std::string& kind) const;
  PJRT_Memory* default_memory(int ordinal) const;

  std::shared_ptr<const Plugin> plugin;
  PJRT_Client* client;
  // Returns whether this process controls the device.
  bool is_local(int ordinal) const { return ordinal >= first_local && ordinal < first_local + local_count; }

  std::vector<PJRT_Device*> devices;     // the devices of all processes, sorted by process and id
  std::vector<DeviceInfo> infos;         // descriptions of `devices`, in the same order
  int first_local = 0, local_count = 0;  // this process's devices are consecutive
  mutable std::atomic<int> launches = 0;
  std::string platform_name;
  std::string platform_version;
  int process_index = 0;
};

// One execution of a program. The output buffers share this object. The Executable also shares it until the next run().
// The destructor waits until the execution has ended, so the client outlives the execution. This wait also limits the
// number of queued executions: run() releases the previous Launch. If no output buffer shares that Launch any more,
// run() then waits for its end.
class Launch {
 public:
  Launch(std::shared_ptr<const ClientHandle> client, std::vector<PJRT_Event*> events)
      : client_(std::move(client)), events_(std::move(events)) {}
  ~Launch();
  // Waits for all devices. When one device failed, every call throws the first error. Thread-safe.
  void wait() const;

 private:
  std::shared_ptr<const ClientHandle> client_;
  mutable std::mutex mutex_;
  mutable std::vector<PJRT_Event*> events_;  // empty after the first wait()
  mutable std::exception_ptr error_;
};

// Host memory, aligned such that the CPU plugin can use it without a copy. All bytes are zero at first.
class HostBlock {
 public:
  explicit HostBlock(int64_t bytes);  // throws DoesNotFit when there is too little memory
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t size_;
};

// Makes one device's buffer of `shape` (the shape of the device's box) from `block`. The block stays alive as long as
// the plugin needs it; nobody may write to the block after this call. If `shared` is true, other devices also use the
// block, so the plugin must not write to it.
PJRT_Buffer* buffer_from_block(const ClientHandle& client, int ordinal, const std::string& memory_kind,
                               const Shape& shape, std::shared_ptr<HostBlock> block, bool shared);
void destroy_buffer(const PJRT_Api& api, PJRT_Buffer* buffer);

// The parts of a layout that this process's devices hold.
struct LocalParts {
  std::vector<Box> boxes;    // the distinct boxes, in order of first appearance
  std::vector<int> part_of;  // for each position in the layout: an index into `boxes`; -1: another process's device
};
LocalParts local_parts(const ClientHandle& client, const Layout& layout);

// Makes the buffers of this process's devices from the filled blocks, one block for each box of local_parts(), and
// takes ownership of the blocks. On the CPU, a block becomes the memory of its buffer, and replicas share one block.
// The plugin must not write to shared blocks. If a buffer with a shared block is donated to a program, the program
// writes its result to other memory.
DeviceBuffer hand_over(const std::shared_ptr<const ClientHandle>& client, const Shape& shape, Layout layout,
                       const std::string& memory_kind, std::vector<std::shared_ptr<HostBlock>> blocks);

}  // namespace fettle
