// Defines the checks of output_dir before a run: ownership, leftovers, what the run replaces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/saved/presence.h"
#include "run/run.h"
#include "train/processes.h"

namespace fettle {

// While this object exists, no other run may use its output_dir. With several processes, the object of the first
// process represents the folder for all processes. If the run created the folder and the folder is still empty, the
// destructor removes the folder. Move-only.
class OutputFolder {
 public:
  OutputFolder() = default;  // for the processes after the first
  // `made` says whether this run created the folder.
  OutputFolder(std::filesystem::path folder, bool made);
  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  // Throws UserError when another run took over the folder.
  void check() const {
    if (presence_ != nullptr) presence_->check();
  }

 private:
  std::filesystem::path folder_;
  bool made_ = false;
  std::shared_ptr<Presence> presence_;
};

// Checks that output_dir is writable, that no other run uses it, and that it has no checkpoint or result of another
// tool. Without overwrite_output_dir, also checks that it contains no earlier run, except one whose checkpoint the run
// continues, or one that was killed before its first checkpoint if resume_from_checkpoint is true. Creates the folder
// if it is missing. If a killed run was moving its result into the folder, completes the move. Removes other unfinished
// files of killed runs. Prints a message for each of these actions. Throws UserError when a check fails.
[[nodiscard]] OutputFolder check_output(const Run& run);
// Like check_output(run), for several processes. Also throws UserError when the processes see different folders under
// this path.
[[nodiscard]] OutputFolder check_output(const Run& run, const Processes& processes);

// Returns the folders in output_dir that clear_output deletes: the checkpoints of the earlier run, also those that were
// set aside. Returns none if the run continues from a checkpoint in output_dir, and none without overwrite_output_dir.
// `resuming` says whether the run continues from a checkpoint, here or elsewhere.
std::vector<std::filesystem::path> folders_to_clear(const Run& run, bool resuming);

// Clears output_dir of what the run will replace. `resumed_step` is the step from which the run continues.
// - If the run continues from a checkpoint in output_dir, deletes nothing. Sets the checkpoints of later steps aside
//   (set_aside_after) and prints a warning for each: they no longer belong to the run, so no later start may continue
//   from them.
// - Otherwise, with overwrite_output_dir, deletes folders_to_clear(), the log, the profiles and report.html of the
//   earlier run, and prints the number of deleted checkpoints. The earlier result stays until write_root writes the new
//   result (root_files.h).
// - Otherwise, does nothing.
// Throws UserError when a file cannot be changed.
void clear_output(const Run& run, std::optional<int64_t> resumed_step);

}  // namespace fettle
