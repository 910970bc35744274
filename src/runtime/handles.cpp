#include "runtime/handles.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/size_text.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

std::string kind_of(const PJRT_Api& api, PJRT_Memory* memory) {
  PJRT_ARGS(PJRT_Memory_Kind_Args, args);
  args.memory = memory;
  PJRT_CALL(api, PJRT_Memory_Kind, args);
  return std::string(args.kind, args.kind_size);
}

}  // namespace

ClientHandle::~ClientHandle() {
  PJRT_ARGS(PJRT_Client_Destroy_Args, args);
  args.client = client;
  pjrt::take(api(), api().PJRT_Client_Destroy(&args));
}

int ClientHandle::ordinal_of(const PJRT_Device* device) const {
  const auto found = std::find(devices.begin(), devices.end(), device);
  internal_check(found != devices.end(), "runtime: the device belongs to another client or process");
  return static_cast<int>(found - devices.begin());
}

std::vector<std::pair<std::string, PJRT_Memory*>> ClientHandle::memories(int ordinal) const {
  PJRT_ARGS(PJRT_Device_AddressableMemories_Args, args);
  args.device = devices[ordinal];
  PJRT_CALL(api(), PJRT_Device_AddressableMemories, args);
  std::vector<std::pair<std::string, PJRT_Memory*>> out;
  for (size_t i = 0; i < args.num_memories; ++i) out.emplace_back(kind_of(api(), args.memories[i]), args.memories[i]);
  return out;
}

PJRT_Memory* ClientHandle::memory(int ordinal, const std::string& kind) const {
  if (kind.empty() || kind == "device") return nullptr;
  std::string known;
  for (const auto& [name, memory] : memories(ordinal)) {
    if (name == kind) return memory;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw DeviceError("device {} of plugin {} has no memory of kind \"{}\"; it has {}", ordinal, plugin->name(), kind,
                    known);
}

PJRT_Memory* ClientHandle::default_memory(int ordinal) const {
  PJRT_ARGS(PJRT_Device_DefaultMemory_Args, args);
  args.device = devices[ordinal];
  PJRT_CALL(api(), PJRT_Device_DefaultMemory, args);
  return args.memory;
}

Launch::~Launch() {
  try {
    wait();
  } catch (const Error&) {
    // The error can be ignored here: code that waits for an output or downloads it gets the error from wait().
  }
}

void Launch::wait() const {
  const std::lock_guard lock(mutex_);
  for (PJRT_Event*& event : events_) {
    try {
      pjrt::await(client_->api(), std::exchange(event, nullptr), "running the program");
    } catch (const Error&) {
      if (!error_) error_ = std::current_exception();
    }
  }
  events_.clear();
  if (error_) std::rethrow_exception(error_);
}

HostBlock::HostBlock(int64_t bytes) : size_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
  void* address = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    throw DoesNotFit("an array needs {} of host memory, but less is free; end other programs", size_text(bytes));
  constexpr size_t kHugePage = size_t{2} << 20;
  if (size_ >= kHugePage) madvise(address, size_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(address);
}

HostBlock::~HostBlock() {
  munmap(data_, size_);
}

PJRT_Buffer* buffer_from_block(const ClientHandle& client, int ordinal, const std::string& memory_kind,
                               const Shape& shape, std::shared_ptr<HostBlock> block, bool shared) {
  internal_check(client.is_local(ordinal), "runtime: device {} of {} does not belong to this process", ordinal,
                 client.devices.size());
  PJRT_ARGS(PJRT_Client_BufferFromHostBuffer_Args, args);
  args.client = client.client;
  args.data = block->data();
  args.type = pjrt::buffer_type(shape.dtype);
  args.dims = shape.dims.data();
  args.num_dims = shape.dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  if (client.plugin->vendor().staging == Staging::kHostMemory) {
    args.host_buffer_semantics =
        shared ? PJRT_HostBufferSemantics_kImmutableZeroCopy : PJRT_HostBufferSemantics_kMutableZeroCopy;
  }
  args.device = client.devices[ordinal];
  args.memory = client.memory(ordinal, memory_kind);
  PJRT_CALL(client.api(), PJRT_Client_BufferFromHostBuffer, args);
  pjrt::keep_until(client.api(), args.done_with_host_buffer, std::move(block));
  return args.buffer;
}

void destroy_buffer(const PJRT_Api& api, PJRT_Buffer* buffer) {
  if (buffer == nullptr) return;  // the shard belongs to another process
  PJRT_ARGS(PJRT_Buffer_Destroy_Args, args);
  args.buffer = buffer;
  pjrt::take(api, api.PJRT_Buffer_Destroy(&args));
}

LocalParts local_parts(const ClientHandle& client, const Layout& layout) {
  LocalParts parts;
  for (int i = 0; i < layout.count(); ++i) {
    internal_check(layout.ordinal(i) >= 0 && layout.ordinal(i) < static_cast<int>(client.devices.size()),
                   "runtime: a layout names device {}, but there are {} devices", layout.ordinal(i),
                   client.devices.size());
    int part = -1;
    if (client.is_local(layout.ordinal(i))) {
      const auto found = std::find(parts.boxes.begin(), parts.boxes.end(), layout.boxes[i]);
      part = static_cast<int>(found - parts.boxes.begin());
      if (found == parts.boxes.end()) parts.boxes.push_back(layout.boxes[i]);
    }
    parts.part_of.push_back(part);
  }
  return parts;
}

DeviceBuffer hand_over(const std::shared_ptr<const ClientHandle>& client, const Shape& shape, Layout layout,
                       const std::string& memory_kind, std::vector<std::shared_ptr<HostBlock>> blocks) {
  const Shape shard{shape.dtype, layout.boxes[0].size};
  const std::vector<int> part_of = local_parts(*client, layout).part_of;
  const auto elsewhere = std::count(part_of.begin(), part_of.end(), -1);
  const bool shared = static_cast<int64_t>(blocks.size()) < layout.count() - elsewhere;
  // `buffer` owns each shard as soon as the shard is made. So if a later device fails, nothing leaks.
  DeviceBuffer buffer(client, shape, layout, memory_kind, {}, nullptr);
  for (int i = 0; i < layout.count(); ++i) {
    buffer.add_shard(
        part_of[i] < 0 ? nullptr
                       : buffer_from_block(*client, layout.ordinal(i), memory_kind, shard, blocks[part_of[i]], shared));
  }
  return buffer;
}

}  // namespace fettle
