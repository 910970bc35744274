// Defines the checks of output_dir before a run: ownership, disk space, leftovers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/repository.h"
#include "checkpoint/saved/presence.h"
#include "programs/devices.h"
#include "run/run.h"
#include "run/run_length.h"
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

// Checks that output_dir is writable and that no other run uses it. Without overwrite_output_dir, also checks that it
// contains no earlier run, except one whose checkpoint the run continues, or one that was killed before its first
// checkpoint if resume_from_checkpoint is true. Creates the folder if it is missing. If a killed run was moving its
// result into the folder, completes the move. Removes other unfinished files of killed runs. Prints a message for each
// of these actions. Throws UserError when a check fails.
[[nodiscard]] OutputFolder check_output(const Run& run);
// Like check_output(run), for several processes. Also throws UserError when the processes see different folders under
// this path.
[[nodiscard]] OutputFolder check_output(const Run& run, const Processes& processes);

// Returns the size of one checkpoint in bytes, including the tensors that full tuning copies from `base`. Here and
// below, `base` is the model folder.
int64_t checkpoint_bytes(const Run& run, const ModelRepository& base);

// Returns the bytes of the temporary files in which several processes pass their weights to the first process, which
// writes the result.
int64_t parts_bytes(const Run& run);

// Returns the largest number of bytes that a run adds to output_dir at any time: its checkpoints, its result and, with
// several processes, parts_bytes(). `done` is the step from which the run continues. `present` is the number of
// checkpoints that are already in the folder and that the limit counts.
int64_t disk_needed(const Run& run, const ModelRepository& base, const RunLength& length, int64_t done, int64_t present,
                    bool several = false);

// Returns the largest save_total_limit with which the run fits into `free` bytes. Counts one checkpoint more than the
// limit, because the oldest one is deleted only after the new one is complete. Returns nullopt if not even a limit of 1
// fits; with a best checkpoint, which stays beside the newest one, a limit of 2. Also returns nullopt if the recipe
// already sets this limit or a smaller one.
std::optional<int64_t> save_total_limit_within(const Run& run, const ModelRepository& base, int64_t present,
                                               int64_t free);

// Throws DoesNotFit when fewer than disk_needed() bytes are free. If offload_dir is on the same disk, adds the size of
// its file. The message has both figures and a remedy. If the run may write fewer checkpoints (early stopping,
// save_strategy: best) and one of them fits, only warns.
void require_disk(const Run& run, const ModelRepository& base, const RunLength& length, bool resuming, int64_t done,
                  bool several = false);

// With offload_dir, makes the folder. Throws UserError for a folder that cannot be made or written, and for one that is
// not on a local disk. Throws DoesNotFit when the disk has too little free space for the files of all processes of this
// host.
void require_offload_dir(const Run& run, const Devices& devices, int processes_of_host);

// Clears output_dir of what the run will replace. `resumed_step` is the step from which the run continues.
// - If the run continues from a checkpoint in output_dir, deletes nothing. Sets the checkpoints of later steps aside
//   (set_aside_after) and prints a warning for each: they belong to a course of the run that the user has left, so no
//   later start may continue from them.
// - Otherwise, with overwrite_output_dir, deletes the checkpoints (also those that were set aside), the log, the
//   profiles and report.html of the earlier run. The earlier result stays until write_root writes the new result
//   (root_files.h).
// - Otherwise, does nothing.
// Throws UserError when a file cannot be changed.
void clear_output(const Run& run, std::optional<int64_t> resumed_step);

}  // namespace fettle
