// Defines FolderFiles, which lists, reads and appends to files below one folder, and opens no other files.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The state of a file. A file that was replaced or written to has another stamp.
struct FileStamp {
  uint64_t inode = 0;
  int64_t size = 0, changed_ns = 0;  // changed_ns: time of the last change, since 1970
  bool operator==(const FileStamp&) const = default;
};

// An open regular file. Move-only.
class OpenedFile {
 public:
  OpenedFile(int fd, FileStamp stamp) : fd_(fd), stamp_(stamp) {}
  OpenedFile(OpenedFile&& other) noexcept : fd_(other.fd_), stamp_(other.stamp_) { other.fd_ = -1; }
  OpenedFile& operator=(OpenedFile&&) = delete;
  ~OpenedFile();
  const FileStamp& stamp() const { return stamp_; }  // the file's state when it was opened
  // Reads up to `bytes` bytes at `offset`; fewer at the end of the file.
  std::string read(int64_t offset, int64_t bytes) const;

 private:
  int fd_;
  FileStamp stamp_;
};

struct FolderEntry {
  std::string name;
  bool folder = false;
};

// The root may be reached by a link. Links below the root are not followed. So nothing outside of the root is read,
// even if somebody replaces a folder by a link at the same moment. Paths are relative to the root. A path counts as
// missing if one of its parts is empty, "." or "..".
class FolderFiles {
 public:
  // Throws UserError when `root` is not a folder that can be read.
  explicit FolderFiles(const std::filesystem::path& root);
  ~FolderFiles();
  FolderFiles(const FolderFiles&) = delete;

  const std::filesystem::path& root() const { return root_; }
  // Opens the root again, because another folder may have its name now. Returns 0, or an error number; then nothing
  // changes. Other threads may call the other functions at the same time.
  int reopen();
  // Returns nullopt if `path` is not a regular file or cannot be read.
  std::optional<OpenedFile> open(std::string_view path) const;
  // Returns the whole file; nullopt if it cannot be read or is larger than `most` bytes.
  std::optional<std::string> read(std::string_view path, int64_t most = 64 << 20) const;
  // Returns nullopt when there is no such regular file.
  std::optional<FileStamp> stamp(std::string_view path) const;
  // Returns the regular files and folders in the folder `path` ("": the root), sorted by name; at most `most`. Returns
  // none when there is no such folder, and nullopt with errno when it cannot be read.
  std::optional<std::vector<FolderEntry>> list(std::string_view path, size_t most) const;
  // Opens a file for appending, and creates it with mode 0644 if it does not exist. Returns its descriptor, which the
  // caller closes; -1 with errno when that fails.
  int append(std::string_view path) const { return open_to_write(path, O_APPEND); }
  // Creates an empty file. Returns 0, or an error number: EEXIST when there is already something with this name.
  int create(std::string_view path) const;

 private:
  // Opens the parent folder of `path` and sets `name` to the last part of `path`. Returns -1 with errno when there is
  // no such folder, or when it cannot be opened.
  int open_parent(std::string_view path, std::string& name) const;
  // Opens a file for writing, and creates it if it does not exist. Returns -1 with errno when that fails.
  int open_to_write(std::string_view path, int flags) const;

  std::filesystem::path root_;
  int fd_ = -1;
};

}  // namespace fettle
