// Defines AtomicFolder: a folder that appears complete, by one rename, or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

// Work goes on in path(), a sibling named NAME.tmp-PROCESS (process_name.h); commit() makes it NAME. One
// owner at a time.
class AtomicFolder {
 public:
  enum class Existing {
    kRefuse,   // UserError when NAME is already there with something in it
    kReplace,  // the old NAME is gone once the new one is there
    kMerge,    // work goes on in NAME/.tmp-PROCESS; commit() renames each file over the one of that name, others stay
  };

  // Creates the working folder (parents too) and removes what crashed runs left of NAME. Throws UserError with the
  // path and the remedy when the place is not writable.
  AtomicFolder(const std::filesystem::path& target, Existing existing);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // kMerge: commit() also deletes NAME/`file`, unless the working folder has one of that name. Last, so that nothing is
  // gone before the new is there.
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

// Removes the working folders that this machine's processes which are gone left of `target`; puts the old folder back
// when a replacement was cut off between its renames.
void clean_leftovers(const std::filesystem::path& target);
// The same for everything in `folder`, files under their temporary names too. For the start of a run, which has nothing
// at work there yet. Returns what was removed.
std::vector<std::filesystem::path> clean_folder(const std::filesystem::path& folder);

// Deletes a folder so that no half-deleted one is ever seen under its name.
void remove_folder(const std::filesystem::path& folder);

}  // namespace fettle
