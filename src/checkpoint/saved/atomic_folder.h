// Defines AtomicFolder: a folder that appears complete, by one rename, or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

// The caller writes to path(), a sibling of NAME named NAME.tmp-PROCESS (process_name.h). commit() renames it to NAME.
// Only one process may write NAME at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // throws UserError when NAME exists and is not empty
    kReplace,  // removes the old NAME after the new one is in place
    kMerge,    // path() is NAME/.tmp-PROCESS; commit() moves each file to NAME and keeps NAME's other files
  };

  // Creates the working folder (and its parents) and removes what crashed runs left of NAME. Throws UserError with the
  // path and the remedy when the place is not writable.
  AtomicFolder(const std::filesystem::path& target, Existing existing);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // For kMerge: commit() also deletes NAME/`file`, unless the working folder has a file of that name. It deletes last,
  // so that the old files exist until the new ones are in place.
  void drop(const std::string& file) { dropped_.push_back(file); }
  // Flushes all files and folders to the disk, then renames.
  void commit();

 private:
  void replace();
  void merge();

  std::filesystem::path target_, working_;
  Existing existing_;
  std::vector<std::string> dropped_;
  bool committed_ = false;
};

// Removes working folders of `target` that ended processes of this machine left. Restores the old folder when a process
// died between the two renames.
void clean_leftovers(const std::filesystem::path& target);
// The same for everything in `folder`, including files with temporary names. Call it at the start of a run, before the
// run writes there. Returns what was removed.
std::vector<std::filesystem::path> clean_folder(const std::filesystem::path& folder);

// Deletes a folder so that a half-deleted one never has its name.
void remove_folder(const std::filesystem::path& folder);

}  // namespace fettle
