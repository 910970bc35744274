// Defines TransferQueue, which reads and writes a file on threads of its own while the caller does other work.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace fettle {

// How transfers reach the kernel: io_uring with one thread, or pread and pwrite in several threads.
enum class DiskEngine { kUring, kThreads };
// Returns the engine that FETTLE_DISK_IO names (uring, pread). If the variable is not set, returns kUring if the kernel
// allows io_uring, else kThreads. Containers often forbid io_uring. Throws UserError when the variable has another
// value, and when it is uring but the kernel forbids io_uring.
DiskEngine choose_disk_engine();
const char* name_of(DiskEngine engine);

// Only one thread may call the members. Transfers may run in any order, so wait for a write before you read the same
// bytes.
class TransferQueue {
 public:
  struct Transfer;
  using Ticket = std::shared_ptr<Transfer>;

  // `fd` must stay open. `place` names the file in messages. Offsets, sizes and addresses of transfers are multiples of
  // kDiskBlock.
  TransferQueue(int fd, std::string place, DiskEngine engine);
  ~TransferQueue();  // waits for all transfers
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  // Starts a transfer. Until the transfer is done, do not write to the memory. During a read, do not read the memory
  // either.
  Ticket read(int64_t offset, std::span<std::byte> to);
  Ticket write(int64_t offset, std::span<const std::byte> from);
  bool done(const Ticket& ticket);
  int64_t bytes_moved();  // bytes that all transfers so far have read and written
  // Waits until the transfer is done. If it failed, throws DoesNotFit when the disk or the quota is full, else
  // UserError. The message has the place, the system's reason and the remedy.
  void wait(const Ticket& ticket);

 private:
  // A part of a transfer. The kernel gets each piece as one request.
  struct Piece {
    Ticket of;
    std::byte* at = nullptr;
    int64_t offset = 0, bytes = 0;
  };
  class Ring;
  Ticket start(bool write, int64_t offset, std::byte* at, int64_t bytes);
  void run_ring();
  void run_calls();
  void finish(Piece piece, int64_t result);

  int fd_;
  std::string place_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> waiting_;
  int64_t moved_ = 0;
  bool ends_ = false;
  std::unique_ptr<Ring> ring_;
  std::vector<std::thread> threads_;
};

}  // namespace fettle
