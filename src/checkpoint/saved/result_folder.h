// Defines ResultFolder, which moves the files of a result into the root of an output folder: all of them or none.
//
// One rename is not enough, because the root also contains checkpoints and other files. So the complete result is first
// renamed to OUTPUT_DIR/.result; from then on it is valid. Then its files are moved to the root one by one. The earlier
// result's config.json and adapter_config.json are deleted first, and the new ones are moved last. So programs cannot
// load the folder while the files of two results are mixed. finish_result completes an interrupted move.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/saved/presence.h"

namespace fettle {

class ResultFolder {
 public:
  // Creates the working folder in `output_dir`. `output_dir` must exist. Uses this process's presence there, or makes
  // one (Presence::in). First completes the interrupted move of an earlier result. Throws UserError when the folder
  // cannot be written.
  explicit ResultFolder(const std::filesystem::path& output_dir);
  ResultFolder(const ResultFolder&) = delete;
  ~ResultFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // Lets commit() also delete OUTPUT_DIR/`file`, unless the result has a file of that name.
  void drop(const std::string& file) { dropped_.push_back(file); }
  // Flushes all files to the disk and moves them. Throws UserError when that fails, or when Presence::check throws. The
  // caller may then call commit() again.
  void commit();

 private:
  std::filesystem::path output_dir_, working_;
  std::shared_ptr<Presence> presence_;
  std::vector<std::string> dropped_;
  bool counts_ = false;  // true: commit() has renamed the working folder to OUTPUT_DIR/.result
};

// Returns whether a run was interrupted while it moved its result into `output_dir`. If so, do not read the files
// directly in `output_dir`: they may belong to two results.
bool has_cut_off_result(const std::filesystem::path& output_dir);
// Completes an interrupted move; does nothing if there is none. Throws UserError when a file cannot be moved.
void finish_result(const std::filesystem::path& output_dir);
// Throws UserError if the folder has no result because a run has not ended: if has_cut_off_result(output_dir), or if
// there are only checkpoints. `entry` is the missing file, config.json or adapter_config.json, and `key` the recipe key
// that names the folder. The message names the newest checkpoint that has the entry. Call this before you report that
// the file is missing.
void require_ended_run(const std::filesystem::path& output_dir, const std::string& entry, std::string_view key);

}  // namespace fettle
