// Defines AtomicFolder: a folder that appears complete, by one rename, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace fettle {

// Work goes on in path(), a sibling named NAME.tmp-PID; commit() makes it NAME. One owner at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // UserError when NAME is already there with something in it
    kReplace,  // the old NAME is gone once the new one is there
    kMerge,    // each file is moved into NAME over the one of that name; others stay
  };

  // Creates the working folder (parents too) and removes what crashed runs left of NAME. Throws UserError with the
  // path and the remedy when the place is not writable.
  AtomicFolder(std::filesystem::path target, Existing existing);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // Flushes all files and folders to the disk, then renames.
  void commit();

 private:
  std::filesystem::path target_, working_;
  Existing existing_;
  bool committed_ = false;
};

// Removes NAME.tmp-PID and NAME.old-PID of processes that are gone; puts NAME.old-PID back when NAME is missing.
void clean_leftovers(const std::filesystem::path& target);

// Writes a whole small file under a temporary name, flushes and renames it to `path`. Throws UserError.
void write_file(const std::filesystem::path& path, std::string_view content);

// Deletes a folder so that no half-deleted one is ever seen under its name.
void remove_folder(const std::filesystem::path& folder);

// Bytes this user can still write on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);
// Throws UserError naming both figures when fewer than `bytes` are free; `what` says what is to be written.
void require_free_bytes(const std::filesystem::path& path, int64_t bytes, std::string_view what);

// Throws UserError for a failed file operation: `action` ("write") on `path`, the system's reason, the remedy.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

}  // namespace fettle
