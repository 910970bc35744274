#include "runtime/transfer.h"

#include <utility>

#include "base/error.h"

namespace fettle {

DeviceBuffer hand_over(const std::shared_ptr<const ClientHandle>& client, const Shape& shape, Layout layout,
                       const std::string& memory_kind, std::vector<std::shared_ptr<HostBlock>> blocks) {
  const Shape shard{shape.dtype, layout.boxes[0].size};
  const std::vector<int> part_of = layout.part_of();
  const bool shared = static_cast<int>(blocks.size()) < layout.count();
  // The buffer owns each shard as soon as there is one, so a failure on a later device leaks none.
  DeviceBuffer buffer(client, shape, layout, memory_kind, {}, nullptr);
  for (int i = 0; i < layout.count(); ++i) {
    buffer.add_shard(buffer_from_block(*client, layout.ordinal(i), memory_kind, shard, blocks[part_of[i]], shared));
  }
  return buffer;
}

PiecewiseTransfer::PiecewiseTransfer(std::shared_ptr<const ClientHandle> client, int ordinal,
                                     const std::string& memory_kind, const Shape& shape)
    : client_(std::move(client)) {
  PJRT_ARGS(PJRT_ShapeSpec, spec);
  spec.dims = shape.dims.data();
  spec.num_dims = shape.dims.size();
  spec.element_type = pjrt::buffer_type(shape.dtype);
  PJRT_Memory* memory = client_->memory(ordinal, memory_kind);
  PJRT_ARGS(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, args);
  args.client = client_->client;
  args.shape_specs = &spec;
  args.num_shape_specs = 1;
  args.memory = memory != nullptr ? memory : client_->default_memory(ordinal);
  PJRT_CALL(client_->api(), PJRT_Client_CreateBuffersForAsyncHostToDevice, args);
  transfer_ = args.transfer_manager;
}

PiecewiseTransfer::~PiecewiseTransfer() {
  PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, args);
  args.transfer_manager = transfer_;
  pjrt::take(client_->api(), client_->api().PJRT_AsyncHostToDeviceTransferManager_Destroy(&args));
}

PJRT_Event* PiecewiseTransfer::send(const HostBlock& piece, int64_t offset, int64_t bytes, bool last) {
  PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, args);
  args.transfer_manager = transfer_;
  args.data = piece.data();
  args.offset = offset;
  args.transfer_size = bytes;
  args.is_last_transfer = last;
  PJRT_CALL(client_->api(), PJRT_AsyncHostToDeviceTransferManager_TransferData, args);
  return args.done_with_h2d_transfer;
}

PJRT_Buffer* PiecewiseTransfer::take_buffer() {
  PJRT_ARGS(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, args);
  args.transfer_manager = transfer_;
  PJRT_CALL(client_->api(), PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, args);
  return args.buffer_out;
}

}  // namespace fettle
