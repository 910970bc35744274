// Defines AtomicFolder, which makes a folder appear complete, by one rename, or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/saved/presence.h"

namespace fettle {

// The target folder is called NAME here. The caller writes to path(), the working folder, which is NAME.tmp-PROCESS
// (process_name.h) beside NAME. commit() renames the working folder to NAME. Only one process may write NAME at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // throws UserError when NAME exists and is not empty
    kReplace,  // removes the old NAME after the new one is in place
  };

  // Creates the working folder (and its parents). Removes the working folders for NAME that were left by crashed runs.
  // Throws UserError with the path and the remedy when the working folder cannot be created, and when NAME is a mount
  // point, which cannot be renamed.
  AtomicFolder(const std::filesystem::path& target, Existing existing);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // Flushes all files and folders to the disk, then renames the working folder. Throws UserError when that fails, and
  // when Presence::check throws.
  void commit();

 private:
  void replace();

  std::filesystem::path target_, working_;
  Existing existing_;
  std::shared_ptr<Presence> presence_;  // this process's presence in the folder that contains `working_`
  bool committed_ = false;
};

// Removes the working folders of `target` that were left by processes that have ended (presence.h). If a process died
// after it had moved the old folder aside and before the new one was in place, gives the old folder its name back.
void clean_leftovers(const std::filesystem::path& target);
// Does the same for all targets in `folder`, including files with temporary names, and removes the presence files of
// dead processes. Returns the paths that were removed, without the presence files.
std::vector<std::filesystem::path> clean_folder(const std::filesystem::path& folder);

// Renames a folder before deleting it, so that a half-deleted folder never has the original name.
void remove_folder(const std::filesystem::path& folder);
// Flushes `folder` and all files and folders in it.
void sync_tree(const std::filesystem::path& folder);

}  // namespace fettle
