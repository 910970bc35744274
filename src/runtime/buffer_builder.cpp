#include "runtime/buffer_builder.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "runtime/client.h"
#include "runtime/handles.h"

namespace fettle {
namespace {

// Fills one device's buffer range by range through PJRT_AsyncHostToDeviceTransferManager. Not thread-safe.
class PiecewiseTransfer {
 public:
  PiecewiseTransfer(std::shared_ptr<const ClientHandle> client, int ordinal, const std::string& memory_kind,
                    const Shape& shape);
  ~PiecewiseTransfer();
  PiecewiseTransfer(const PiecewiseTransfer&) = delete;
  PiecewiseTransfer& operator=(const PiecewiseTransfer&) = delete;

  // Sends the first `bytes` bytes of `piece` to byte `offset` of the buffer. `piece` must stay alive until the returned
  // event is ready. `last` says whether this is the final transfer.
  PJRT_Event* send(const HostBlock& piece, int64_t offset, int64_t bytes, bool last);
  PJRT_Buffer* take_buffer();

 private:
  std::shared_ptr<const ClientHandle> client_;
  PJRT_AsyncHostToDeviceTransferManager* transfer_ = nullptr;
};

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

}  // namespace

class BufferBuilder::State {
 public:
  State(const Client& client, const Shape& shape, Layout layout, std::string memory_kind, Staging staging,
        int64_t staging_limit)
      : client_(client.handle()),
        shape_(shape),
        layout_(std::move(layout)),
        memory_kind_(std::move(memory_kind)),
        parts_(local_parts(*client_, layout_).boxes),
        part_of_(local_parts(*client_, layout_).part_of),
        part_bytes_(parts_[0].elements() * byte_size(shape.dtype)),
        missing_(parts_.size(), part_bytes_),
        staging_limit_(staging_limit),
        piece_limit_(std::max<int64_t>(1, staging_limit / kMostLargePieces)) {
    if (staging == Staging::kTransferManager && part_bytes_ > 0) {
      const Shape shard{shape.dtype, parts_[0].size};
      for (int i = 0; i < layout_.count(); ++i) {
        transfers_.push_back(
            part_of_[i] < 0 ? nullptr
                            : std::make_unique<PiecewiseTransfer>(client_, layout_.ordinal(i), memory_kind_, shard));
      }
    } else {
      for (size_t i = 0; i < parts_.size(); ++i) blocks_.push_back(std::make_shared<HostBlock>(part_bytes_));
    }
  }

  ~State() {
    // Pieces must outlive their transfers, even when the array is never finished.
    while (!in_flight_.empty()) {
      try {
        await_oldest();
      } catch (const Error&) {
      }
    }
  }

  const std::vector<Box>& parts() const { return parts_; }

  void write(int part, int64_t offset, std::span<const std::byte> bytes) {
    const int64_t count = static_cast<int64_t>(bytes.size());
    internal_check(part >= 0 && part < static_cast<int>(parts_.size()),
                   "buffer builder: there is no part {}, the number of parts is {}", part, parts_.size());
    internal_check(offset >= 0 && offset <= part_bytes_ - count,
                   "buffer builder: bytes [{}, {}) are not inside a part of {} bytes", offset, offset + count,
                   part_bytes_);
    if (!transfers_.empty()) return send(part, offset, bytes);
    std::memcpy(blocks_[part]->data() + offset, bytes.data(), bytes.size());
    const std::lock_guard lock(mutex_);
    count_written(part, count);
  }

  DeviceBuffer finish() {
    for (size_t part = 0; part < parts_.size(); ++part) {
      internal_check(missing_[part] == 0, "buffer builder: {} bytes of part {} of {} were not written", missing_[part],
                     part, shape_.to_string());
    }
    if (transfers_.empty()) return hand_over(client_, shape_, layout_, memory_kind_, std::move(blocks_));
    DeviceBuffer buffer(client_, shape_, layout_, memory_kind_, {}, nullptr);
    while (!in_flight_.empty()) await_oldest();
    for (const auto& transfer : transfers_) buffer.add_shard(transfer == nullptr ? nullptr : transfer->take_buffer());
    return buffer;
  }

 private:
  static constexpr int64_t kMostLargePieces = 4;  // number of pieces of the largest size within staging_limit
  struct Piece {
    std::vector<PJRT_Event*> events;
    std::unique_ptr<HostBlock> bytes;
    int64_t count = 0;
  };

  // The right to use `count` bytes of host memory for a piece. The piece takes it over when it is sent.
  class Reservation {
   public:
    Reservation(State& state, int64_t count) : state_(state), count_(count) { state_.reserve(count); }
    ~Reservation() {
      if (count_ > 0) state_.give_back(count_);
    }
    Reservation(const Reservation&) = delete;
    int64_t take() { return std::exchange(count_, 0); }

   private:
    State& state_;
    int64_t count_;
  };

  void count_written(int part, int64_t count) {
    missing_[part] -= count;
    internal_check(missing_[part] >= 0, "buffer builder: more bytes were written than part {} of {} has", part,
                   shape_.to_string());
  }

  // Cuts `bytes` into pieces and sends each piece to all devices that hold the part. `bytes` may be a mapped file, so
  // copying them may wait for a disk. Several threads therefore copy at once, without the lock.
  void send(int part, int64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min<size_t>(bytes.size(), static_cast<size_t>(piece_limit_));
      Reservation reserved(*this, static_cast<int64_t>(count));
      auto block = std::make_unique<HostBlock>(static_cast<int64_t>(count));
      std::memcpy(block->data(), bytes.data(), count);
      const std::lock_guard lock(mutex_);
      count_written(part, static_cast<int64_t>(count));
      Piece& piece = in_flight_.emplace_back();
      piece.bytes = std::move(block);
      piece.count = reserved.take();
      changed_.notify_all();
      for (int i = 0; i < layout_.count(); ++i) {
        if (part_of_[i] != part) continue;
        piece.events.push_back(
            transfers_[i]->send(*piece.bytes, offset, static_cast<int64_t>(count), missing_[part] == 0));
      }
      bytes = bytes.subspan(count);
      offset += static_cast<int64_t>(count);
    }
  }

  // Waits until `count` more bytes of host memory stay within the limit. A piece that is larger than the limit waits
  // until it is the only one.
  void reserve(int64_t count) {
    std::unique_lock lock(mutex_);
    while (staged_ > 0 && staged_ + count > staging_limit_) {
      if (in_flight_.empty()) {  // other threads copy, or wait for a transfer
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      await_oldest();
      lock.lock();
    }
    staged_ += count;
  }

  void give_back(int64_t count) {
    {
      const std::lock_guard lock(mutex_);
      staged_ -= count;
    }
    changed_.notify_all();
  }

  // Waits for the oldest transfer and frees its memory. Does nothing if there is none.
  void await_oldest() {
    Piece piece;
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_.empty()) return;
      piece = std::move(in_flight_.front());
      in_flight_.pop_front();
    }
    std::exception_ptr failure;
    for (PJRT_Event* event : piece.events) {
      try {
        pjrt::await(client_->api(), event, "sending to the device");
      } catch (const Error&) {
        failure = std::current_exception();
      }
    }
    piece.bytes.reset();
    give_back(piece.count);
    if (failure) std::rethrow_exception(failure);
  }

  std::shared_ptr<const ClientHandle> client_;
  Shape shape_;
  Layout layout_;
  std::string memory_kind_;
  std::vector<Box> parts_;
  std::vector<int> part_of_;
  int64_t part_bytes_;
  std::mutex mutex_;              // protects missing_, staged_ and in_flight_, and orders the transfers
  std::vector<int64_t> missing_;  // bytes not yet written, by part
  int64_t staging_limit_, piece_limit_;
  int64_t staged_ = 0;               // bytes of host memory in pieces, from before they are copied until they are sent
  std::condition_variable changed_;  // notified when staged_ gets smaller, or in_flight_ longer
  std::vector<std::shared_ptr<HostBlock>> blocks_;             // by part; used if transfers_ is empty
  std::vector<std::unique_ptr<PiecewiseTransfer>> transfers_;  // by position in layout_; null: another process's device
  std::deque<Piece> in_flight_;
};

BufferBuilder::BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind)
    : BufferBuilder(client, shape, std::move(layout), memory_kind, client.plugin().vendor().staging, kStagingLimit) {}

BufferBuilder::BufferBuilder(const Client& client, const Shape& shape, Layout layout, const std::string& memory_kind,
                             Staging staging, int64_t staging_limit) {
  check_layout(shape, layout, "buffer builder");
  state_ = std::make_unique<State>(client, shape, std::move(layout), memory_kind, staging, staging_limit);
}

BufferBuilder::~BufferBuilder() = default;
BufferBuilder::BufferBuilder(BufferBuilder&&) noexcept = default;
BufferBuilder& BufferBuilder::operator=(BufferBuilder&&) noexcept = default;

const std::vector<Box>& BufferBuilder::parts() const {
  internal_check(state_ != nullptr, "buffer builder: parts() was called after finish()");
  return state_->parts();
}

void BufferBuilder::write(int part, int64_t offset, std::span<const std::byte> bytes) {
  internal_check(state_ != nullptr, "buffer builder: write() was called after finish()");
  state_->write(part, offset, bytes);
}

DeviceBuffer BufferBuilder::finish() {
  internal_check(state_ != nullptr, "buffer builder: finish() was called twice");
  DeviceBuffer buffer = state_->finish();
  state_.reset();
  return buffer;
}

}  // namespace fettle
