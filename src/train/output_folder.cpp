#include "train/output_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/free_space.h"
#include "base/files/run_files.h"
#include "base/log.h"
#include "base/size_text.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/result_folder.h"
#include "disk/local_disk.h"
#include "report/view/run_file.h"
#include "step/disk/disk_layout.h"
#include "step/state/snapshot.h"
#include "train/result.h"
#include "train/root_files.h"

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

// Returns the folders that clear_output deletes when a run replaces an earlier one.
std::vector<fs::path> replaced_folders(const fs::path& output_dir) {
  std::vector<fs::path> folders = abandoned_checkpoints(output_dir);
  for (const CheckpointFolder& old : list_checkpoints(output_dir)) folders.push_back(old.path);
  return folders;
}

// Returns whether the run continues from a checkpoint that is not in output_dir. To an earlier run in output_dir, such
// a run is a new one.
bool comes_from_elsewhere(const Run& run) {
  const std::string& from = run.output.resume_from;
  std::error_code missing;
  if (from.empty() || from == "true" || !fs::exists(from, missing)) return false;
  fs::path named = fs::absolute(from).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  const auto is_here = [&](const fs::path& checkpoint) {
    return fs::equivalent(checkpoint.parent_path(), run.output.folder, missing);
  };
  return !is_here(named) && !is_here(fs::canonical(from, missing));
}

// Returns whether the folder has a result of the run that was there last. If a later run began and was killed before
// its first checkpoint, fettle_run.json describes that run.
bool has_own_result(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kResultMark, ignored) && last_run_finished(folder);
}

// Throws UserError if the run reads from a folder that clear_output would delete.
void require_inputs_stay(const Run& run) {
  std::vector<std::string> inputs = run.adapters();
  inputs.insert(inputs.end(), {run.model_folder, run.reference_folder, run.output.resume_from});
  const auto real = [](const fs::path& path) {
    std::error_code ignored;
    return fs::weakly_canonical(path, ignored);
  };
  for (const fs::path& old : replaced_folders(run.output.folder))
    for (const std::string& input : inputs) {
      const fs::path deleted = real(old), read = real(input);
      if (input.empty() || std::ranges::mismatch(deleted, read).in1 != deleted.end()) continue;
      throw UserError(
          "output_dir: with overwrite_output_dir, this run would delete {}, but it reads {}; choose another output_dir "
          "or move that folder",
          old.string(), input);
    }
}

}  // namespace

OutputFolder::OutputFolder(fs::path folder, bool made) : folder_(std::move(folder)), made_(made) {
  try {
    presence_ = Presence::alone_in(folder_);
  } catch (...) {
    std::error_code filled;
    if (made_) fs::remove(folder_, filled);
    throw;
  }
}

OutputFolder::~OutputFolder() {
  if (presence_ == nullptr) return;  // this object was moved from, or belongs to a process after the first
  presence_.reset();
  std::error_code filled;  // ignored: fs::remove fails if the folder is not empty
  if (made_) fs::remove(folder_, filled);
}

OutputFolder check_output(const Run& run) {
  const fs::path folder = run.output.folder;
  std::error_code ignored, failed;
  const bool there = fs::exists(folder, ignored);
  fs::create_directories(folder, failed);
  if (failed) throw_file_error("create", folder, failed.value());
  OutputFolder alone(folder, !there);
  if (has_cut_off_result(folder)) {
    finish_result(folder);
    info("{}: an interrupted run had begun to move its result here; completed the move", folder.string());
  }
  for (const fs::path& removed : clean_folder(folder)) info("removed {}, left by an interrupted run", removed.string());
  const bool finished = has_own_result(folder), has_checkpoints = !list_checkpoints(folder).empty();
  const bool used =
      fs::exists(folder / kResultMark, ignored) || fs::exists(folder / kProgressLog, ignored) || has_checkpoints;
  // A run that goes on from another folder and was killed before its first checkpoint here may be started again.
  const bool starts_anew =
      run.output.resume_from.empty() || (comes_from_elsewhere(run) && (finished || has_checkpoints));
  if (used && starts_anew && !run.output.overwrite)
    throw UserError(
        "output_dir: {} contains an earlier run; set overwrite_output_dir: true to replace it, "
        "resume_from_checkpoint: true to continue it, or choose another folder",
        folder.string());
  const bool no_checkpoint = run.output.resume_from == "true" && !has_checkpoints;
  if (finished && no_checkpoint && !run.output.overwrite)
    throw UserError(
        "output_dir: {} has the result of an earlier run, but no checkpoint from which a run could continue; set "
        "overwrite_output_dir: true to train again and replace the result, or choose another folder",
        folder.string());
  if (used && (starts_anew || no_checkpoint) && run.output.overwrite) require_inputs_stay(run);
  return alone;
}

OutputFolder check_output(const Run& run, const Processes& processes) {
  std::optional<OutputFolder> folder;
  processes.agree("output_dir", [&] {
    if (processes.first()) folder.emplace(check_output(run));
    return "";
  });
  processes.require_shared(run.output.folder);
  return folder ? std::move(*folder) : OutputFolder();
}

int64_t checkpoint_bytes(const Run& run, const ModelRepository& base) {
  return (run.output.save_only_model ? 0 : snapshot_bytes(run)) + result_bytes(run, base);
}

int64_t parts_bytes(const Run& run) {
  int64_t bytes = 0;
  for (const StateArray& array : result_arrays(run)) bytes += array.shape.bytes();
  return bytes;
}

int64_t disk_needed(const Run& run, const ModelRepository& base, const RunLength& length, int64_t done, int64_t present,
                    bool several) {
  int64_t checkpoints = saves_after(run, length, done);
  // An old checkpoint is deleted only after the new checkpoint is complete.
  if (const int64_t limit = run.output.save_total_limit; limit > 0)
    checkpoints = std::min(checkpoints, std::max<int64_t>(1, left_with(run, limit) + 1 - present));
  return checkpoints * checkpoint_bytes(run, base) + result_bytes(run, base) + (several ? parts_bytes(run) : 0);
}

std::optional<int64_t> save_total_limit_within(const Run& run, const ModelRepository& base, int64_t present,
                                               int64_t free) {
  const int64_t room = std::max<int64_t>(0, free - result_bytes(run, base)) / checkpoint_bytes(run, base);
  const int64_t limit = room - 1 + present;  // for a moment there is one checkpoint more than the limit
  const int64_t own = run.output.save_total_limit;
  if (room == 0 || limit < left_with(run, 1) || (own > 0 && limit >= own)) return std::nullopt;
  return limit;
}

void require_disk(const Run& run, const ModelRepository& base, const RunLength& length, bool resuming, int64_t done,
                  bool several) {
  const fs::path folder = run.output.folder;
  const std::vector<CheckpointFolder> there = list_checkpoints(folder);
  int64_t free = free_bytes(folder);
  const bool stay = resuming && !comes_from_elsewhere(run);  // else clear_output deletes them
  if (!stay)
    for (const fs::path& old : replaced_folders(folder)) free += tree_bytes(old);
  // Later checkpoints do not count, because clear_output sets them aside.
  const auto counts = [&](const CheckpointFolder& one) { return stay && one.step <= done; };
  const int64_t present = std::ranges::count_if(there, counts);
  const int64_t state = run.state_on_disk() && same_disk(folder, run.offload_dir) ? disk_layout(run).file_bytes : 0;
  const int64_t needed = disk_needed(run, base, length, done, present, several) + state;
  if (needed <= free) return;
  const int64_t parts = several ? parts_bytes(run) : 0, one = checkpoint_bytes(run, base);
  const int64_t rest = state + parts + result_bytes(run, base), count = (needed - rest) / one;
  // Early stopping and save_strategy: best may write fewer checkpoints, perhaps only one.
  const bool surely = (run.best.patience == 0 && !run.best.save) || one + rest > free;
  const std::optional<int64_t> limit = save_total_limit_within(run, base, present, free - parts - state);
  const std::string text = fmt::format(
      "output_dir: {} {} {} of disk space ({} checkpoint{} of {} and the result{}{}), but {} are free; {}free some "
      "space, or choose another disk",
      folder.string(), surely ? "needs" : "may need", size_text(needed), count, count == 1 ? "" : "s", size_text(one),
      several ? " and temporary files in which the processes pass their weights" : "",
      state > 0 ? fmt::format(", and {} in offload_dir, which is on the same disk", size_text(state)) : "",
      size_text(free), limit ? fmt::format("set save_total_limit: {} or fewer, or larger save_steps, ", *limit) : "");
  if (surely) throw DoesNotFit("{}", text);
  warn("{}", text);
}

void require_offload_dir(const Run& run, const Devices& devices, int processes_of_host) {
  if (!run.state_on_disk()) return;
  const fs::path folder = run.offload_dir;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_file_error("create", folder, failed.value());
  require_local_disk(folder, run.offload_dir_at);
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_file_error("create a file in", folder, errno);
  require_free_bytes(folder, disk_layout(run, devices).file_bytes * processes_of_host, "offload_dir");
}

void clear_output(const Run& run, std::optional<int64_t> resumed_step) {
  const fs::path folder = run.output.folder;
  const bool goes_on = resumed_step && !comes_from_elsewhere(run);
  if (goes_on) {
    const std::vector<fs::path> aside = set_aside_after(folder, *resumed_step);
    for (const fs::path& one : aside)
      warn("this run goes back to step {}, so a later checkpoint is now called {}; delete it if you do not need it",
           *resumed_step, one.string());
    if (!aside.empty() && run.output.resume_from != "true")
      warn(
          "to start this run again, set resume_from_checkpoint: true; with {}, it goes back each time and keeps more "
          "checkpoints",
          run.output.resume_from);
  }
  if (goes_on || !run.output.overwrite) return;
  const std::vector<fs::path> replaced = replaced_folders(folder);
  if (resumed_step && !replaced.empty())
    warn(
        "{}: the {} checkpoint{} there {} deleted, because overwrite_output_dir is set; to start this run again, set "
        "resume_from_checkpoint: true",
        folder.string(), replaced.size(), replaced.size() == 1 ? "" : "s", replaced.size() == 1 ? "is" : "are");
  for (const fs::path& old : replaced) remove_folder(old);
  std::error_code ignored;
  for (const char* name : {kProgressLog, kReportFile}) fs::remove(folder / name, ignored);
  fs::remove_all(folder / "profile" / "plugins" / "profile", ignored);
}

}  // namespace fettle
