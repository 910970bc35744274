// Defines AtomicFolder: a folder that appears complete, by one rename, or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/saved/presence.h"

namespace fettle {

// Work goes on in path(), a sibling named NAME.tmp-PROCESS (process_name.h); commit() makes it NAME. One
// owner at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // UserError when NAME is already there with something in it
    kReplace,  // the old NAME is gone once the new one is there
  };

  // Creates the working folder (parents too) and removes what crashed runs left of NAME. Throws UserError with the
  // path and the remedy when the place is not writable.
  AtomicFolder(const std::filesystem::path& target, Existing existing);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // Flushes all files and folders to the disk, then renames. Throws UserError, as Presence::check too.
  void commit();

 private:
  void replace();

  std::filesystem::path target_, working_;
  Existing existing_;
  std::shared_ptr<Presence> presence_;  // in the folder of `working_`
  bool committed_ = false;
};

// Removes the working folders that processes which are gone (presence.h) left of `target`; puts the old folder back
// when a replacement was cut off between its renames.
void clean_leftovers(const std::filesystem::path& target);
// The same for everything in `folder`, files under their temporary names too. Returns what was removed.
std::vector<std::filesystem::path> clean_folder(const std::filesystem::path& folder);

// Deletes a folder so that no half-deleted one is ever seen under its name.
void remove_folder(const std::filesystem::path& folder);
// Flushes all files and folders in `folder`, and itself.
void sync_tree(const std::filesystem::path& folder);

}  // namespace fettle
