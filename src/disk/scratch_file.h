// Defines ScratchFile: a file without a name, which the system deletes when the process ends, even by SIGKILL.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fettle {

class ScratchFile {
 public:
  // Makes `folder` if the folder is missing. Then makes a file of `bytes` zero bytes in the folder. Reserves the file's
  // space on the disk if the file system supports that. Only this process can open the file. `what` names the content
  // in messages. Reads and writes bypass the page cache (O_DIRECT); if the file system does not support that, warns.
  // Throws DoesNotFit when fewer bytes are free, and UserError when the file cannot be made.
  ScratchFile(const std::filesystem::path& folder, int64_t bytes, std::string_view what);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return fd_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int fd_ = -1;
};

}  // namespace fettle
