#include "train/disk_space.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/free_space.h"
#include "base/log.h"
#include "base/size_text.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "disk/local_disk.h"
#include "step/disk/disk_layout.h"
#include "step/state/snapshot.h"
#include "train/output_folder.h"
#include "train/result.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the largest number of checkpoints that the steps after `done` may write. It is at least 1, because an
// interrupt saves a checkpoint.
int64_t saves_after(const Run& run, const RunLength& length, int64_t done) {
  // With save_strategy: best, every evaluation may be better than all earlier ones.
  const int64_t every = run.best.save ? length.eval_every : length.save_every, total = length.total_steps;
  const int64_t saves = every > 0 ? total / every - done / every + (total % every != 0) : 0;
  return std::max<int64_t>(1, saves);
}

int64_t tree_bytes(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code code;
  for (fs::recursive_directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

// Returns the largest number of checkpoints that are left after an old one was deleted. The best checkpoint is never
// deleted, so with a limit of 1 it may be there beside the newest one.
int64_t left_with(const Run& run, int64_t limit) {
  return std::max<int64_t>(limit, run.best.used() ? 2 : 1);
}

// Returns whether two folders are on the same file system. Both must exist.
bool same_disk(const fs::path& a, const fs::path& b) {
  struct stat first {
  }, second{};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

}  // namespace

int64_t checkpoint_bytes(const Run& run, const ModelRepository& base) {
  const int64_t weights = run.best.load_at_end ? parts_bytes(run) : 0;
  return (run.output.save_only_model ? weights : snapshot_bytes(run)) + result_bytes(run, base);
}

int64_t parts_bytes(const Run& run) {
  int64_t bytes = 0;
  for (const StateArray& array : result_arrays(run)) bytes += array.shape.bytes();
  return bytes;
}

int64_t disk_needed(const Run& run, const ModelRepository& base, const RunLength& length, const DiskNeeds& needs,
                    int64_t present) {
  int64_t checkpoints = saves_after(run, length, needs.resumed_step.value_or(0));
  // An old checkpoint is deleted only after the new checkpoint is complete.
  if (const int64_t limit = run.output.save_total_limit; limit > 0)
    checkpoints = std::min(checkpoints, std::max<int64_t>(1, left_with(run, limit) + 1 - present));
  return checkpoints * checkpoint_bytes(run, base) + result_bytes(run, base) + (needs.several ? parts_bytes(run) : 0);
}

std::optional<int64_t> save_total_limit_within(const Run& run, const ModelRepository& base, int64_t present,
                                               int64_t free) {
  const int64_t room = std::max<int64_t>(0, free - result_bytes(run, base)) / checkpoint_bytes(run, base);
  const int64_t limit = room - 1 + present;  // for a moment there is one checkpoint more than the limit
  const int64_t own = run.output.save_total_limit;
  if (room == 0 || limit < left_with(run, 1) || (own > 0 && limit >= own)) return std::nullopt;
  return limit;
}

void require_disk(const Run& run, const ModelRepository& base, const RunLength& length, const DiskNeeds& needs) {
  const fs::path folder = run.output.folder;
  int64_t free = free_bytes(folder);
  const std::vector<fs::path> cleared = folders_to_clear(run, needs.resumed_step.has_value());
  for (const fs::path& old : cleared) free += tree_bytes(old);
  // Later checkpoints do not count, because clear_output sets them aside.
  const auto stays = [&](const CheckpointFolder& one) {
    return one.step <= needs.resumed_step.value_or(0) && std::ranges::count(cleared, one.path) == 0;
  };
  const int64_t present = std::ranges::count_if(list_checkpoints(folder), stays);
  const int64_t state = run.state_on_disk() && same_disk(folder, run.offload.dir) ? disk_layout(run).file_bytes : 0;
  const int64_t needed = disk_needed(run, base, length, needs, present) + state;
  if (needed <= free) return;
  const int64_t parts = needs.several ? parts_bytes(run) : 0, one = checkpoint_bytes(run, base);
  const int64_t rest = state + parts + result_bytes(run, base), count = (needed - rest) / one;
  // Early stopping and save_strategy: best may write fewer checkpoints, perhaps only one. With save_strategy: no, only
  // an interrupt writes one.
  const bool saves = run.best.save || length.save_every > 0;
  const bool surely = (saves && run.best.patience == 0 && !run.best.save) || (saves ? one : 0) + rest > free;
  const std::optional<int64_t> limit = save_total_limit_within(run, base, present, free - parts - state);
  const std::string text = fmt::format(
      "output_dir: {} {} {} of disk space ({}the result{}{}), but {} are free; {}free some space, or choose another "
      "disk",
      folder.string(), surely ? "needs" : "may need", size_text(saves || !surely ? needed : rest),
      saves     ? fmt::format("{} checkpoint{} of {} and ", count, count == 1 ? "" : "s", size_text(one))
      : !surely ? fmt::format("a checkpoint of {}, if the run is interrupted, and ", size_text(one))
                : "",
      needs.several ? " and temporary files in which the processes pass their weights" : "",
      state > 0 ? fmt::format(", and {} in offload_dir, which is on the same disk", size_text(state)) : "",
      size_text(free), limit ? fmt::format("set save_total_limit: {} or fewer, or larger save_steps, ", *limit) : "");
  if (surely) throw DoesNotFit("{}", text);
  warn("{}", text);
}

void require_offload_dir(const Run& run, const Devices& devices, int processes_of_host) {
  if (!run.state_on_disk()) return;
  const fs::path folder = run.offload.dir;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_file_error("create", folder, failed.value());
  require_local_disk(folder, run.places.of("offload_dir"));
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_file_error("create a file in", folder, errno);
  require_free_bytes(folder, disk_layout(run, devices).file_bytes * processes_of_host, "offload_dir");
}

}  // namespace fettle
