#include "disk/transfer_queue.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/size_text.h"

namespace fettle {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // as in DeepSpeed's and fio's usual settings
constexpr unsigned kRingDepth = 32;       // the operating system has at most this many requests at a time
constexpr int kCallThreads = 8;

// Returns 0, or the error with which the kernel refuses io_uring.
int uring_error() {
  io_uring ring;
  const int code = io_uring_queue_init(1, &ring, 0);
  if (code == 0) io_uring_queue_exit(&ring);
  return -code;
}

}  // namespace

const char* name_of(DiskEngine engine) {
  return engine == DiskEngine::kUring ? "io_uring" : "pread and pwrite";
}

DiskEngine choose_disk_engine() {
  const std::string wanted = environment("FETTLE_DISK_IO");
  if (wanted == "pread") return DiskEngine::kThreads;
  if (!wanted.empty() && wanted != "uring")
    throw UserError("FETTLE_DISK_IO is '{}', but it must be uring or pread", wanted);
  const int error = uring_error();
  if (error == 0) return DiskEngine::kUring;
  if (wanted == "uring")
    throw UserError("FETTLE_DISK_IO=uring: the kernel refuses io_uring: {}; remove the variable", std::strerror(error));
  return DiskEngine::kThreads;
}

struct TransferQueue::Transfer {
  bool write = false;
  int64_t left = 0;    // bytes that are not transferred yet
  int error = 0;       // errno of the first piece that failed; -1: the file ends early; 0: no failure
  int64_t offset = 0;  // offset of the piece that failed
};

// Owns io_uring's queues. Keeps each added piece until the piece is done.
class TransferQueue::Ring {
 public:
  Ring() {
    if (const int code = io_uring_queue_init(kRingDepth, &ring_, 0); code != 0)
      throw UserError("the kernel refuses io_uring: {}; set FETTLE_DISK_IO=pread", std::strerror(-code));
    for (unsigned slot = 0; slot < kRingDepth; ++slot) free_.push_back(slot);
  }
  ~Ring() { io_uring_queue_exit(&ring_); }
  bool full() const { return free_.empty(); }
  bool idle() const { return free_.size() == kRingDepth; }

  void add(int fd, Piece piece) {
    const unsigned slot = free_.back();
    free_.pop_back();
    waiting_.push_back(slot);
    if (broken_ != 0) {
      pieces_[slot] = std::move(piece);
      return;
    }
    io_uring_sqe* request = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(piece.bytes);
    const auto offset = static_cast<uint64_t>(piece.offset);
    if (piece.of->write)
      io_uring_prep_write(request, fd, piece.at, bytes, offset);
    else
      io_uring_prep_read(request, fd, piece.at, bytes, offset);
    pieces_[slot] = std::move(piece);
    io_uring_sqe_set_data(request, &pieces_[slot]);
  }
  // Submits the added pieces and waits until at least one is done. Returns the pieces that are done, each with its
  // number of bytes or -errno. May return nothing; then the caller calls again. Any error other than EINTR, EAGAIN and
  // EBUSY is final: all pieces that the kernel does not have yet fail with this error, including pieces that are added
  // later. The pieces that the kernel has are still waited for, because the kernel reads and writes their memory.
  std::vector<std::pair<Piece, int64_t>> wait() {
    std::vector<std::pair<Piece, int64_t>> done;
    if (broken_ == 0) {
      const int code = io_uring_submit_and_wait(&ring_, 1);
      if (code < 0 && code != -EINTR && code != -EAGAIN && code != -EBUSY) broken_ = code;
      if (io_uring_sq_ready(&ring_) == 0) waiting_.clear();
    }
    if (broken_ != 0) {
      for (const unsigned slot : waiting_) {
        done.emplace_back(std::move(pieces_[slot]), broken_);
        free_.push_back(slot);
      }
      waiting_.clear();
      if (done.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (io_uring_cqe* one = nullptr; io_uring_peek_cqe(&ring_, &one) == 0;) {
      auto* const piece = static_cast<Piece*>(io_uring_cqe_get_data(one));
      done.emplace_back(std::move(*piece), one->res);
      free_.push_back(static_cast<unsigned>(piece - pieces_));
      io_uring_cqe_seen(&ring_, one);
    }
    return done;
  }

 private:
  io_uring ring_;
  Piece pieces_[kRingDepth];
  std::vector<unsigned> free_;
  std::vector<unsigned> waiting_;  // slots with pieces that the kernel may not have yet
  int broken_ = 0;                 // -errno after a lasting error; nothing is submitted any more
};

TransferQueue::TransferQueue(int fd, std::string place, DiskEngine engine) : fd_(fd), place_(std::move(place)) {
  if (engine == DiskEngine::kUring) {
    ring_ = std::make_unique<Ring>();
    threads_.emplace_back([this] { run_ring(); });
  } else {
    for (int i = 0; i < kCallThreads; ++i) threads_.emplace_back([this] { run_calls(); });
  }
}

TransferQueue::~TransferQueue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TransferQueue::run_ring() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty() || !ring_->idle(); });
    if (waiting_.empty() && ring_->idle()) return;
    for (; !waiting_.empty() && !ring_->full(); waiting_.pop_front()) ring_->add(fd_, std::move(waiting_.front()));
    lock.unlock();
    auto done = ring_->wait();
    lock.lock();
    for (auto& [piece, result] : done) finish(std::move(piece), result);
  }
}

void TransferQueue::run_calls() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Piece piece = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const auto bytes = static_cast<size_t>(piece.bytes);
    int64_t result =
        piece.of->write ? pwrite(fd_, piece.at, bytes, piece.offset) : pread(fd_, piece.at, bytes, piece.offset);
    if (result < 0) result = -errno;
    lock.lock();
    finish(std::move(piece), result);
  }
}

// Counts the bytes that are done, and puts the rest of the piece back into the queue. `result` is the number of bytes,
// or -errno. A piece that failed is not tried again, except after EINTR or EAGAIN. The caller has locked the mutex.
void TransferQueue::finish(Piece piece, int64_t result) {
  Transfer& transfer = *piece.of;
  const bool again = result == -EINTR || result == -EAGAIN;
  if (result > 0) moved_ += result;
  if (!again && result <= 0) {
    if (transfer.error == 0) transfer.offset = piece.offset;
    if (transfer.error == 0) transfer.error = result == 0 ? -1 : static_cast<int>(-result);
    result = piece.bytes;
  }
  if (!again) {
    piece.at += result;
    piece.offset += result;
    piece.bytes -= result;
    transfer.left -= result;
  }
  if (piece.bytes > 0) waiting_.push_front(std::move(piece));
  changed_.notify_all();
}

TransferQueue::Ticket TransferQueue::start(bool write, int64_t offset, std::byte* at, int64_t bytes) {
  auto ticket = std::make_shared<Transfer>(Transfer{write, bytes});
  {
    const std::lock_guard lock(mutex_);
    for (int64_t done = 0; done < bytes; done += kPieceBytes)
      waiting_.push_back({ticket, at + done, offset + done, std::min(kPieceBytes, bytes - done)});
  }
  changed_.notify_all();
  return ticket;
}

TransferQueue::Ticket TransferQueue::read(int64_t offset, std::span<std::byte> to) {
  return start(false, offset, to.data(), static_cast<int64_t>(to.size()));
}

TransferQueue::Ticket TransferQueue::write(int64_t offset, std::span<const std::byte> from) {
  return start(true, offset, const_cast<std::byte*>(from.data()), static_cast<int64_t>(from.size()));
}

bool TransferQueue::done(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  return ticket->left == 0;
}

int64_t TransferQueue::bytes_moved() {
  const std::lock_guard lock(mutex_);
  return moved_;
}

void TransferQueue::wait(const Ticket& ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ticket->left == 0; });
  if (ticket->error == 0) return;
  const std::string reason = ticket->error < 0 ? "the file ends there" : std::strerror(ticket->error);
  const std::string failed =
      fmt::format("{}: cannot {} the offloaded state, at byte {} of its file: {}; checkpoints are not affected", place_,
                  ticket->write ? "write" : "read", ticket->offset, reason);
  if (ticket->error == ENOSPC || ticket->error == EDQUOT)
    throw DoesNotFit("{}: free some space, or choose another disk, and continue with resume_from_checkpoint=true",
                     failed);
  throw UserError("{}: check the disk, or choose another one, and continue with resume_from_checkpoint=true", failed);
}

}  // namespace fettle
