// Defines the care for output_dir around a run: whose it is, room on its disk, leftovers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/saved/presence.h"
#include "run/run.h"
#include "run/run_length.h"

namespace fettle {

// output_dir while this run has it for itself. When nothing came of a run that made it, an empty folder does not stay.
// Move-only.
class OutputFolder {
 public:
  // `made`: whether this run created it.
  OutputFolder(std::filesystem::path folder, bool made);
  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  // Throws UserError when another run took the folder over.
  void check() const { presence_->check(); }

 private:
  std::filesystem::path folder_;
  bool made_;
  std::shared_ptr<Presence> presence_;
};

// output_dir must be writable, free of a live run, and free of an earlier run unless overwrite_output_dir or
// resume_from_checkpoint is set. Creates it, completes the move of a result that was cut off, and removes what killed
// runs left there, saying so. Throws UserError.
[[nodiscard]] OutputFolder check_output(const Run& run);

// Bytes of one checkpoint.
int64_t checkpoint_bytes(const Run& run);

// Bytes that a run will add to output_dir at its worst moment: the checkpoints it keeps and its result. `done`: steps
// before it; `present`: checkpoints that are there and stay.
int64_t disk_needed(const Run& run, const RunLength& length, int64_t done, int64_t present);

// The largest save_total_limit with which a run fits into `free` bytes; nothing when not even one checkpoint does, or
// the recipe's own is no larger.
std::optional<int64_t> save_total_limit_within(const Run& run, int64_t present, int64_t free);

// Throws DoesNotFit, with both figures and what to set, when they are not free.
void require_disk(const Run& run, const RunLength& length, bool resuming, int64_t done);

// With overwrite_output_dir the earlier run's checkpoints and log go now; its result when there is a new one
// (root_files.h).
void clear_output(const Run& run, bool resuming);

}  // namespace fettle
