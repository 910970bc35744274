// Defines ScratchFolder, a folder for files that the program needs only for a while.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

// The destructor removes the folder and its content.
class ScratchFolder {
 public:
  // Makes a new folder in the system's folder for temporary files, which TMPDIR names. The folder's name begins with
  // `name`. Throws UserError when the folder cannot be made.
  explicit ScratchFolder(const std::string& name);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fettle
