// Defines FileHashes, which remembers the hashes of data files, so that later runs need not read unchanged files.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace fettle {

// The hash of a file is remembered together with the file's path, size and inode number, and the times at which its
// content and its inode were changed. No program can set the last of these times, so a changed file is always noticed.
// Several processes may share a folder.
class FileHashes {
 public:
  // The hash of a file that was changed less than `settled` ago is not remembered. The clock of a file system is
  // coarse, so the next change could get the same time.
  explicit FileHashes(std::filesystem::path folder, std::chrono::nanoseconds settled = std::chrono::seconds(2))
      : folder_(std::move(folder)), settled_(settled) {}

  // Returns the hash of the file's content. Shows progress while it reads a large file. Throws UserError when the file
  // cannot be read. After a signal, throws the error of InterruptScope::check.
  std::string of(const std::filesystem::path& file) const;
  // Removes hashes that no run used for `age`.
  void remove_unused(std::chrono::hours age) const;

 private:
  std::filesystem::path folder_;
  std::chrono::nanoseconds settled_;
};

}  // namespace fettle
