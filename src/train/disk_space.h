// Defines how much disk space a run needs, and the checks that it is free.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/repository.h"
#include "programs/devices.h"
#include "run/run.h"
#include "run/run_length.h"

namespace fettle {

// Returns the size of one checkpoint in bytes, including the tensors that full tuning copies from `base`. Here and
// below, `base` is the model folder.
int64_t checkpoint_bytes(const Run& run, const ModelRepository& base);

// Returns the bytes of the temporary files in which several processes pass their weights to the first process, which
// writes the result.
int64_t parts_bytes(const Run& run);

// What decides about disk space besides the recipe, the model and the length of the run.
struct DiskNeeds {
  std::optional<int64_t> resumed_step = {};  // the step from which the run continues
  bool several = false;                      // several processes take part
};

// Returns the largest number of bytes that a run adds to output_dir at any time: its checkpoints, its result and, with
// several processes, parts_bytes(). `present` is the number of checkpoints that are already in the folder and that the
// limit counts.
int64_t disk_needed(const Run& run, const ModelRepository& base, const RunLength& length, const DiskNeeds& needs,
                    int64_t present);

// Returns the largest save_total_limit with which the run fits into `free` bytes. Counts one checkpoint more than the
// limit, because the oldest one is deleted only after the new one is complete. Returns nullopt if not even a limit of 1
// fits; with a best checkpoint, which stays beside the newest one, a limit of 2. Also returns nullopt if the recipe
// already sets this limit or a smaller one.
std::optional<int64_t> save_total_limit_within(const Run& run, const ModelRepository& base, int64_t present,
                                               int64_t free);

// Throws DoesNotFit when fewer than disk_needed() bytes are free. The bytes of folders_to_clear() count as free. If
// offload_dir is on the same disk, adds the size of its file. The message has both figures and a remedy. If the run may
// write fewer checkpoints (early stopping, save_strategy: best) and one of them fits, only warns.
void require_disk(const Run& run, const ModelRepository& base, const RunLength& length, const DiskNeeds& needs);

// With offload_dir, makes the folder. Throws UserError for a folder that cannot be made or written, and for one that is
// not on a local disk. Throws DoesNotFit when the disk has too little free space for the files of all processes of this
// host.
void require_offload_dir(const Run& run, const Devices& devices, int processes_of_host);

}  // namespace fettle
