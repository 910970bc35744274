// Defines ResultFolder: the files of a result, which get into the root of an output folder all together or not at all.
//
// They cannot get there by one rename, since checkpoints and other files are there too. So the complete result first
// becomes OUTPUT_DIR/.result by one rename; from then on it counts. Then its files are moved to the root. During the
// move the root has no config.json and adapter_config.json of this kind of result, without which no program loads a
// model or an adapter: those of the earlier result go first, and the new ones come last. finish_result completes a move
// that was cut off.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/saved/presence.h"

namespace fettle {

class ResultFolder {
 public:
  // Creates the working folder in `output_dir`, which is there and belongs to this process. Throws UserError.
  explicit ResultFolder(const std::filesystem::path& output_dir);
  ResultFolder(const ResultFolder&) = delete;
  ~ResultFolder();  // removes the working folder unless committed

  const std::filesystem::path& path() const { return working_; }
  // commit() also deletes OUTPUT_DIR/`file`, unless the result has one of that name.
  void drop(const std::string& file) { dropped_.push_back(file); }
  // Flushes all files to the disk and moves them. Throws UserError, as Presence::check too; commit() may then be called
  // again.
  void commit();

 private:
  std::filesystem::path output_dir_, working_;
  std::shared_ptr<Presence> presence_;
  std::vector<std::string> dropped_;
  bool counts_ = false;
};

// Whether a result in `output_dir` waits to be moved, so that the root is not to be used.
bool has_cut_off_result(const std::filesystem::path& output_dir);
// Moves it. Throws UserError.
void finish_result(const std::filesystem::path& output_dir);
// Throws UserError when one waits, for those who would read the root.
void require_whole_result(const std::filesystem::path& output_dir);

}  // namespace fettle
