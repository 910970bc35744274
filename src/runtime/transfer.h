// How host bytes become device buffers: whole boxes at once, or pieces through the plugin's transfer manager.
// For the bodies of this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/handles.h"

namespace fettle {

// Makes the buffers of all devices from the filled blocks, one block a part of the layout, which are given away. On the
// CPU the blocks become the buffers' memory; replicas then share a block, and a run that is donated one of them writes
// its result elsewhere.
DeviceBuffer hand_over(const std::shared_ptr<const ClientHandle>& client, const Shape& shape, Layout layout,
                       const std::string& memory_kind, std::vector<std::shared_ptr<HostBlock>> blocks);

// One device's buffer filled by byte ranges through PJRT_AsyncHostToDeviceTransferManager. Not thread-safe.
class PiecewiseTransfer {
 public:
  PiecewiseTransfer(std::shared_ptr<const ClientHandle> client, int ordinal, const std::string& memory_kind,
                    const Shape& shape);
  ~PiecewiseTransfer();
  PiecewiseTransfer(const PiecewiseTransfer&) = delete;
  PiecewiseTransfer& operator=(const PiecewiseTransfer&) = delete;

  // Sends `bytes` of `piece`; the event is ready when the piece may go. `last`: nothing follows.
  PJRT_Event* send(const HostBlock& piece, int64_t offset, int64_t bytes, bool last);
  PJRT_Buffer* take_buffer();

 private:
  std::shared_ptr<const ClientHandle> client_;
  PJRT_AsyncHostToDeviceTransferManager* transfer_ = nullptr;
};

}  // namespace fettle
