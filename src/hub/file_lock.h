// Defines FileLock: a lock that only one process at a time can have.
#pragma once

#include <filesystem>
#include <optional>

namespace fettle {

// An exclusive flock(2) on a file, like the locks of Python's filelock and of huggingface_hub. The destructor releases
// the lock and leaves the file. Move-only.
class FileLock {
 public:
  // Makes the file and its folder if they are missing. Returns nullopt while another process has the lock. On a file
  // system without flock, grants the lock, but the lock does not exclude other processes. Throws UserError when the
  // file cannot be made.
  static std::optional<FileLock> try_take(const std::filesystem::path& file);

  FileLock(FileLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace fettle
