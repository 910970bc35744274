// Defines FileMapping: a read-only mapping of an open file. The mapping notices when the file loses bytes.
//
// If the file no longer has some mapped bytes, reading them raises SIGBUS, which normally ends the process. A read
// error of the disk has the same effect. The first FileMapping installs a signal handler, which replaces the bytes by
// zeros and marks the mapping. So code that reads mapped bytes must call intact() afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fettle {

// Move-only; const members may be called from any thread.
class FileMapping {
 public:
  FileMapping() = default;  // maps nothing
  // Maps the whole file `descriptor` and takes ownership of the descriptor. On failure, sets `error_number` to errno
  // and maps nothing; on success, sets it to 0. A file without bytes is mapped as an empty span.
  FileMapping(int descriptor, int& error_number);
  FileMapping(FileMapping&&) noexcept;
  FileMapping& operator=(FileMapping&&) noexcept;
  ~FileMapping();

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  // Returns false when bytes that were read may be wrong (zeros), because the file became shorter or could not be read.
  bool intact() const;

 private:
  struct Range;

  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  Range* range_ = nullptr;  // the entry that the signal handler uses for this mapping
};

}  // namespace fettle
