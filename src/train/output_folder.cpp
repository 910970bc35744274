#include "train/output_folder.h"

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/run_files.h"
#include "base/files/within.h"
#include "base/log.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/own_log.h"
#include "checkpoint/saved/result_folder.h"
#include "report/view/run_file.h"
#include "train/root_files.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the checkpoints of an earlier run in output_dir, also those that were set aside.
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

// Returns whether the run continues from a checkpoint in output_dir. `resuming` says whether it continues at all.
bool goes_on_here(const Run& run, bool resuming) {
  return resuming && !comes_from_elsewhere(run);
}

// Returns whether the folder has a result of the run that was there last. If a later run began and was killed before
// its first checkpoint, fettle_run.json describes that run.
bool has_own_result(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kResultMark, ignored) && last_run_finished(folder);
}

// Throws UserError if the run reads from a folder that clear_output would delete. It is not yet known from which
// checkpoint the run continues.
void require_inputs_stay(const Run& run) {
  std::vector<std::string> inputs = run.adapter.folders();
  inputs.insert(inputs.end(), {run.model_folder, run.reference.folder, run.output.resume_from});
  const auto real = [](const fs::path& path) {
    std::error_code ignored;
    return fs::weakly_canonical(path, ignored);
  };
  for (const fs::path& old : replaced_folders(run.output.folder))
    for (const std::string& input : inputs) {
      const fs::path deleted = real(old), read = real(input);
      if (input.empty() || !is_within(read, deleted)) continue;
      throw UserError(
          "output_dir: with overwrite_output_dir, this run would delete {}, but it reads {}; choose another output_dir "
          "or move that folder",
          old.string(), input);
    }
}

// Throws UserError if the folder has a checkpoint or the result of another tool. A run would write checkpoints of the
// same names, and a later run could not tell the files of the two tools apart.
void require_own(const fs::path& folder) {
  std::optional<fs::path> other = foreign_checkpoint(folder);
  std::error_code ignored;
  if (const fs::path log = folder / "trainer_state.json";
      !other && fs::exists(folder / kResultMark, ignored) && is_foreign_log(log))
    other = log;
  if (!other) return;
  throw UserError(
      "output_dir: {} was not written by Fettle, or has lost its state and its log. Fettle neither continues nor "
      "deletes it; choose another output_dir, or move the files of that run",
      other->string());
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
  require_own(folder);
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

std::vector<fs::path> folders_to_clear(const Run& run, bool resuming) {
  if (goes_on_here(run, resuming) || !run.output.overwrite) return {};
  return replaced_folders(run.output.folder);
}

void clear_output(const Run& run, std::optional<int64_t> resumed_step) {
  const fs::path folder = run.output.folder;
  if (goes_on_here(run, resumed_step.has_value())) {
    const std::vector<fs::path> aside = set_aside_after(folder, *resumed_step);
    for (const fs::path& one : aside)
      warn("this run goes back to step {}, so a later checkpoint is now called {}; delete it if you do not need it",
           *resumed_step, one.string());
    if (!aside.empty() && run.output.resume_from != "true")
      warn(
          "if you start this run again, set resume_from_checkpoint: true. With {}, every start goes back to that "
          "checkpoint and leaves more renamed checkpoints on the disk",
          run.output.resume_from);
    return;
  }
  if (!run.output.overwrite) return;
  const std::vector<fs::path> replaced = folders_to_clear(run, resumed_step.has_value());
  if (!replaced.empty()) {
    const bool one = replaced.size() == 1;
    const std::string text =
        fmt::format("{}: the {} checkpoint{} there {} deleted, because overwrite_output_dir is set", folder.string(),
                    replaced.size(), one ? "" : "s", one ? "is" : "are");
    if (resumed_step)
      warn("{}; to start this run again, set resume_from_checkpoint: true", text);
    else
      info("{}", text);
  }
  for (const fs::path& old : replaced) remove_folder(old);
  std::error_code ignored;
  for (const char* name : {kProgressLog, kReportFile}) fs::remove(folder / name, ignored);
  fs::remove_all(folder / "profile" / "plugins" / "profile", ignored);
}

}  // namespace fettle
