// Defines the checks of output_dir before a run: ownership, disk space, leftovers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/saved/presence.h"
#include "run/run.h"
#include "run/run_length.h"
#include "train/processes.h"

namespace fettle {

// Represents output_dir while only this run may use it. With several processes, the first process holds the folder for
// all. If the run created the folder and it is still empty afterwards, the destructor removes it. Move-only.
class OutputFolder {
 public:
  OutputFolder() = default;  // another process of the run holds the folder
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

// Checks that output_dir is writable, that no other run uses it, and that it has no earlier run unless
// overwrite_output_dir or resume_from_checkpoint is set. Creates it, completes the move of a result that was
// interrupted, and removes what killed runs left there, with a message. Throws UserError.
[[nodiscard]] OutputFolder check_output(const Run& run);
// Does the same for several processes. Also throws UserError when the processes do not share the folder.
[[nodiscard]] OutputFolder check_output(const Run& run, const Processes& processes);

// Returns the bytes of one checkpoint.
int64_t checkpoint_bytes(const Run& run);

// Returns the bytes of the weights that several processes write before the first one makes the result of them.
int64_t parts_bytes(const Run& run);

// Returns the most bytes that a run adds to output_dir at any moment: the checkpoints that it keeps and its result, and
// with several processes parts_bytes(). `done`: steps before this run. `present`: checkpoints that are there and stay.
int64_t disk_needed(const Run& run, const RunLength& length, int64_t done, int64_t present, bool several = false);

// Returns the largest save_total_limit with which a run fits into `free` bytes. Returns nullopt when not even one
// checkpoint fits, or when the recipe's own limit is not larger.
std::optional<int64_t> save_total_limit_within(const Run& run, int64_t present, int64_t free);

// Throws DoesNotFit, with both figures and what to set, when these bytes are not free.
void require_disk(const Run& run, const RunLength& length, bool resuming, int64_t done, bool several = false);

// With overwrite_output_dir, deletes the earlier run's checkpoints and log now. Its result is deleted when the new
// result is written (root_files.h).
void clear_output(const Run& run, bool resuming);

}  // namespace fettle
