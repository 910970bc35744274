#include "runtime/buffer.h"

#include <algorithm>
#include <utility>

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "runtime/client.h"
#include "runtime/handles.h"

namespace fettle {

DeviceBuffer::DeviceBuffer(std::shared_ptr<const ClientHandle> client, Shape shape, Layout layout,
                           std::string memory_kind, std::vector<PJRT_Buffer*> shards,
                           std::shared_ptr<const Launch> launch)
    : client_(std::move(client)),
      shape_(std::move(shape)),
      layout_(std::move(layout)),
      memory_kind_(std::move(memory_kind)),
      shards_(std::move(shards)),
      launch_(std::move(launch)) {}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept {
  *this = std::move(other);
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  client_ = std::move(other.client_);
  shape_ = std::move(other.shape_);
  layout_ = std::move(other.layout_);
  memory_kind_ = std::move(other.memory_kind_);
  shards_ = std::exchange(other.shards_, {});
  launch_ = std::move(other.launch_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  release();
}

DeviceBuffer DeviceBuffer::upload(const Client& client, const Shape& shape, Layout layout, const FillBox& fill,
                                  const std::string& memory_kind) {
  check_layout(shape, layout, "upload");
  const std::vector<Box> parts = local_parts(*client.handle(), layout).boxes;
  std::vector<std::shared_ptr<HostBlock>> blocks;
  for (const Box& box : parts) {
    blocks.push_back(std::make_shared<HostBlock>(box.elements() * byte_size(shape.dtype)));
    fill(box, blocks.back()->data());
  }
  return hand_over(client.handle(), shape, std::move(layout), memory_kind, std::move(blocks));
}

DeviceBuffer DeviceBuffer::upload(const Client& client, const HostArray& global, Layout layout,
                                  const std::string& memory_kind) {
  const FillBox slice = [&](const Box& box, std::byte* out) {
    copy_common(Box::whole(global.shape().dims), global.data(), box, out, byte_size(global.shape().dtype));
  };
  return upload(client, global.shape(), std::move(layout), slice, memory_kind);
}

DeviceBuffer DeviceBuffer::zeros(const Client& client, const Shape& shape, Layout layout,
                                 const std::string& memory_kind) {
  return upload(
      client, shape, std::move(layout), [](const Box&, std::byte*) {}, memory_kind);  // new pages are already zero
}

bool DeviceBuffer::is_deleted() const {
  for (PJRT_Buffer* shard : shards_) {
    if (shard == nullptr) continue;
    PJRT_ARGS(PJRT_Buffer_IsDeleted_Args, args);
    args.buffer = shard;
    PJRT_CALL(client_->api(), PJRT_Buffer_IsDeleted, args);
    if (args.is_deleted) return true;
  }
  return shards_.empty();
}

void DeviceBuffer::release() {
  for (PJRT_Buffer* shard : shards_) destroy_buffer(client_->api(), shard);
  shards_.clear();
  launch_.reset();
}

void DeviceBuffer::require_alive(const char* use) const {
  internal_check(!is_deleted(), "{}: the device buffer {} is deleted", use, shape_.to_string());
}

void DeviceBuffer::wait() const {
  require_alive("wait");
  if (launch_) launch_->wait();
  for (PJRT_Buffer* shard : shards_) {
    if (shard == nullptr) continue;
    PJRT_ARGS(PJRT_Buffer_ReadyEvent_Args, args);
    args.buffer = shard;
    PJRT_CALL(client_->api(), PJRT_Buffer_ReadyEvent, args);
    pjrt::await(client_->api(), args.event, "PJRT_Buffer_ReadyEvent");
  }
}

void DeviceBuffer::read_shard(int position, std::byte* out, int64_t bytes) const {
  const Dims& dims = layout_.boxes[position].size;
  Dims minor_to_major(dims.rbegin(), dims.rend());
  for (size_t d = 0; d < dims.size(); ++d) minor_to_major[d] = static_cast<int64_t>(dims.size() - 1 - d);
  PJRT_ARGS(PJRT_Buffer_MemoryLayout, row_major);
  row_major.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  row_major.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  row_major.tiled.minor_to_major = minor_to_major.data();
  row_major.tiled.minor_to_major_size = minor_to_major.size();
  PJRT_ARGS(PJRT_Buffer_ToHostBuffer_Args, args);
  args.src = shards_[position];
  args.host_layout = &row_major;
  args.dst = out;
  args.dst_size = static_cast<size_t>(bytes);
  PJRT_CALL(client_->api(), PJRT_Buffer_ToHostBuffer, args);
  pjrt::await(client_->api(), args.event, "PJRT_Buffer_ToHostBuffer");
}

void DeviceBuffer::download_shard(int position, std::byte* out, int64_t bytes) const {
  require_alive("download");
  internal_check(position >= 0 && position < layout_.count() && is_local(position),
                 "download: this process does not have shard {} of {}", position, layout_.count());
  const int64_t own = layout_.boxes[static_cast<size_t>(position)].elements() * byte_size(shape_.dtype);
  internal_check(bytes == own, "download: the caller asks for {} bytes, but the shard has {}", bytes, own);
  if (launch_) launch_->wait();
  if (bytes > 0) read_shard(position, out, bytes);
}

HostArray DeviceBuffer::download_shard(int position) const {
  internal_check(position >= 0 && position < layout_.count(),
                 "download: there is no shard {}, the number of shards is {}", position, layout_.count());
  HostArray shard(Shape{shape_.dtype, layout_.boxes[static_cast<size_t>(position)].size});
  download_shard(position, shard.data(), shard.bytes());
  return shard;
}

HostArray DeviceBuffer::download() const {
  require_alive("download");
  const LocalParts parts = local_parts(*client_, layout_);
  const auto position_of = [&](size_t part) {
    return static_cast<int>(std::find(parts.part_of.begin(), parts.part_of.end(), static_cast<int>(part)) -
                            parts.part_of.begin());
  };
  if (layout_.boxes[0].size == shape_.dims) return download_shard(position_of(0));
  HostArray global(shape_);
  int64_t elements = 0;
  for (size_t part = 0; part < parts.boxes.size(); ++part) {
    const HostArray shard = download_shard(position_of(part));
    copy_common(parts.boxes[part], shard.data(), Box::whole(shape_.dims), global.data(), byte_size(shape_.dtype));
    elements += parts.boxes[part].elements();
  }
  internal_check(elements >= shape_.elements(), "download: other processes hold parts of the array {}",
                 shape_.to_string());
  return global;
}

}  // namespace fettle
