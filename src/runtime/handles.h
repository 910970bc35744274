// What buffers and executables share: the client's handle, a launch in flight, and host memory lent to the plugin.
// For the bodies of this folder.
#pragma once

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

// Owns the PJRT_Client. Everything made from the client shares it, so it goes last.
struct ClientHandle {
  ClientHandle(std::shared_ptr<const Plugin> plugin, PJRT_Client* client) : plugin(std::move(plugin)), client(client) {}
  ~ClientHandle();
  ClientHandle(const ClientHandle&) = delete;
  ClientHandle& operator=(const ClientHandle&) = delete;

  const PJRT_Api& api() const { return plugin->api(); }
  int ordinal_of(const PJRT_Device* device) const;  // throws InternalError for a device of another client
  // What the device reaches, by kind.
  std::vector<std::pair<std::string, PJRT_Memory*>> memories(int ordinal) const;
  // The device's memory of a kind; null for "" and "device", the default. Throws DeviceError naming the kinds there
  // are.
  PJRT_Memory* memory(int ordinal, const std::string& kind) const;
  PJRT_Memory* default_memory(int ordinal) const;

  std::shared_ptr<const Plugin> plugin;
  PJRT_Client* client;
  std::vector<PJRT_Device*> devices;  // those this process drives
  std::vector<DeviceInfo> infos;      // the same, described
  std::string platform_name;
  std::string platform_version;
  int process_index = 0;
};

// One run in flight. Its destruction waits for it, so that at most a few runs are ever queued and nothing they use is
// torn down under them.
class Launch {
 public:
  Launch(std::shared_ptr<const ClientHandle> client, std::vector<PJRT_Event*> events)
      : client_(std::move(client)), events_(std::move(events)) {}
  ~Launch();
  // Throws the first device's error, every time it is called. Thread-safe.
  void wait() const;

 private:
  std::shared_ptr<const ClientHandle> client_;
  mutable std::mutex mutex_;
  mutable std::vector<PJRT_Event*> events_;  // emptied by the first wait
  mutable std::exception_ptr error_;
};

// Host memory aligned as the CPU plugin wants it for use without a copy. Pages are zero at first.
class HostBlock {
 public:
  explicit HostBlock(int64_t bytes);  // throws DoesNotFit when there is no such memory
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t size_;
};

// Makes one device's buffer of `shape` (a box's) from `block`, which is kept until the plugin is done with it and may
// not be written any more. `shared`: other devices' buffers use the same block, so the plugin must not write to it.
PJRT_Buffer* buffer_from_block(const ClientHandle& client, int ordinal, const std::string& memory_kind,
                               const Shape& shape, std::shared_ptr<HostBlock> block, bool shared);
void destroy_buffer(const PJRT_Api& api, PJRT_Buffer* buffer);

// Makes the buffers of all devices from the filled blocks, one block a part of the layout, which are given away. On the
// CPU the blocks become the buffers' memory; replicas then share a block, and a run that is donated one of them writes
// its result elsewhere.
DeviceBuffer hand_over(const std::shared_ptr<const ClientHandle>& client, const Shape& shape, Layout layout,
                       const std::string& memory_kind, std::vector<std::shared_ptr<HostBlock>> blocks);

}  // namespace fettle
