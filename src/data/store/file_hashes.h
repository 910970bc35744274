// Defines FileHashes, which remembers the hashes of data files, so that later runs need not read unchanged files.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace fettle {

// The hash of a file is remembered together with the file's path, size and inode number, and the times at which its
// content and its inode were changed. No program can set the last of these times, so a file that is written again is
// noticed. A change through a memory map that stays open may not be: the kernel sets the times only at the first store
// to a page. The hashes of files whose times have no parts of a second are not remembered, because read-only images
// (squashfs) have made-up times. Several processes may share a folder.
class FileHashes {
 public:
  // The hash of a file that was changed less than `settled` ago is not remembered. The clock of a file system is
  // coarse, so the next change could get the same time.
  explicit FileHashes(std::filesystem::path folder, std::chrono::nanoseconds settled = std::chrono::seconds(2))
      : folder_(std::move(folder)), settled_(settled) {}

  // Returns the hash of the file's content. Shows progress while it reads a large file. Throws UserError when the file
  // cannot be read. After a signal, throws the error of InterruptScope::check when it reads the file.
  std::string of(const std::filesystem::path& file) const;
  // Removes hashes that no run used for `age`.
  void remove_unused(std::chrono::hours age) const;

 private:
  std::filesystem::path folder_;
  std::chrono::nanoseconds settled_;
};

}  // namespace fettle
