#include "base/files/file_mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

namespace fettle {

// An entry of the list that the signal handler walks. Entries are used again and never freed, so that the handler can
// walk the list at any time.
struct FileMapping::Range {
  std::atomic<uintptr_t> begin{0};  // 0: this entry is free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
  Range* next = nullptr;

  static std::atomic<Range*> first;
  static struct sigaction previous;

  static Range* add(const void* data, int64_t size);
  void remove();
  static void install_handler();
  static void on_bus_error(int signal, siginfo_t* info, void* context);
};

std::atomic<FileMapping::Range*> FileMapping::Range::first{nullptr};
struct sigaction FileMapping::Range::previous {};

FileMapping::Range* FileMapping::Range::add(const void* data, int64_t size) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  install_handler();
  Range* range = first;
  while (range != nullptr && range->begin != 0) range = range->next;
  if (range == nullptr) {
    range = new Range;
    range->next = first;
    first = range;
  }
  range->lost = false;
  range->end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(size);
  range->begin = reinterpret_cast<uintptr_t>(data);
  return range;
}

void FileMapping::Range::remove() {
  end = 0;
  begin = 0;
}

void FileMapping::Range::install_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous) == 0;
  }();
  (void)installed;
}

// Uses only atomics and functions that are safe in a signal handler.
void FileMapping::Range::on_bus_error(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range* range = first; range != nullptr; range = range->next) {
    const uintptr_t end = range->end;
    if (address < range->begin || address >= end) continue;
    // The mark comes first, so that a reader that sees zeros also sees the mark.
    range->lost = true;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t from = address / page * page;
    void* zeros = mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    errno = saved_errno;
    if (zeros != MAP_FAILED) return;
  }
  // The address is not in a FileMapping, or no zeros could be mapped. The read happens again with the earlier handler
  // and fails as usual.
  sigaction(SIGBUS, &previous, nullptr);
  errno = saved_errno;
}

FileMapping::FileMapping(int descriptor, int& error_number) : descriptor_(descriptor) {
  error_number = 0;
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    error_number = errno;
    return;
  }
  if (status.st_size == 0) return;
  void* data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) {
    error_number = errno;
    return;
  }
  data_ = static_cast<const std::byte*>(data);
  size_ = status.st_size;
  range_ = Range::add(data_, size_);
}

FileMapping::FileMapping(FileMapping&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      range_(std::exchange(other.range_, nullptr)) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(range_, other.range_);
  return *this;
}

FileMapping::~FileMapping() {
  if (range_ != nullptr) range_->remove();
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool FileMapping::intact() const {
  if (range_ != nullptr && range_->lost) return false;
  // When a file became shorter, the rest of its last page reads as zeros, and no signal is raised. So the size is
  // compared, too.
  struct stat status {};
  return descriptor_ < 0 || (fstat(descriptor_, &status) == 0 && status.st_size >= size_);
}

}  // namespace fettle
