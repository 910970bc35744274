#include "checkpoint/saved/checkpoint_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/output_file.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/own_log.h"
#include "checkpoint/saved/state.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFolderPrefix = "checkpoint-";
constexpr std::string_view kAside = ".abandoned";

std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + kFolderPrefix.size(), end, step);
  if (code != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

// Returns whether Transformers' Trainer, or a tool that uses it, wrote the checkpoint. Fettle never writes this file.
bool is_trainers(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "training_args.bin", ignored);
}

// Returns whether Fettle wrote the checkpoint, which may be damaged. A checkpoint has a state or, with save_only_model,
// at least a log.
bool is_own(const fs::path& folder) {
  return has_state_files(state_folder(folder)) || (is_own_log(folder / "trainer_state.json") && !is_trainers(folder));
}

bool has_no_file(const fs::path& folder) {
  std::error_code code;
  for (fs::recursive_directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) return false;
  }
  return !code;
}

// Throws the reason why no run can continue from the folder.
[[noreturn]] void throw_stateless(const fs::path& folder) {
  if (const auto newest = newest_checkpoint(folder))
    throw UserError(
        "resume_from_checkpoint: {} contains checkpoints, but is none itself; set resume_from_checkpoint to the newest "
        "complete one, {}",
        folder.string(), newest->path.string());
  const std::string remedy = "to start from its weights, set adapter_name_or_path or model_name_or_path to it";
  if (is_trainers(folder))
    throw UserError(
        "resume_from_checkpoint: {} is a checkpoint of another tool (it has training_args.bin), and Fettle resumes "
        "only its own; {}",
        folder.string(), remedy);
  throw UserError(
      "resume_from_checkpoint: {} has no state/ folder (save_only_model leaves it out), so it cannot be resumed; {}",
      folder.string(), remedy);
}

// Returns the folders with the names of checkpoints, in any order. `own` selects those of Fettle or those of others.
std::vector<CheckpointFolder> find_folders(const fs::path& output_dir, bool own) {
  std::vector<CheckpointFolder> found;
  std::error_code code;
  for (fs::directory_iterator it(output_dir, code), end; !code && it != end; it.increment(code)) {
    const std::optional<int64_t> step = step_of(it->path());
    std::error_code ignored;
    if (step && it->is_directory(ignored) && is_own(it->path()) == own) found.push_back({it->path(), *step});
  }
  return found;
}

bool is_complete(const fs::path& folder) {
  try {
    StateReader reader(state_folder(folder));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

fs::path checkpoint_path(const fs::path& output_dir, int64_t step) {
  return output_dir / fmt::format("{}{}", kFolderPrefix, step);
}

fs::path state_folder(const fs::path& checkpoint) {
  return checkpoint / "state";
}

fs::path weights_folder(const fs::path& checkpoint) {
  return checkpoint / "weights";
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& output_dir) {
  std::vector<CheckpointFolder> found = find_folders(output_dir, true);
  for (CheckpointFolder& one : found) one.complete = is_complete(one.path);
  std::ranges::sort(found, {}, &CheckpointFolder::step);
  return found;
}

std::optional<fs::path> foreign_checkpoint(const fs::path& output_dir) {
  std::vector<CheckpointFolder> found = find_folders(output_dir, false);
  std::erase_if(found, [](const CheckpointFolder& one) { return has_no_file(one.path); });
  const auto last = std::ranges::max_element(found, {}, &CheckpointFolder::step);
  return last == found.end() ? std::nullopt : std::optional(last->path);
}

std::optional<CheckpointFolder> newest_checkpoint(const fs::path& output_dir) {
  const std::vector<CheckpointFolder> all = list_checkpoints(output_dir);
  const auto newest = std::find_if(all.rbegin(), all.rend(), [](const auto& one) { return one.complete; });
  return newest == all.rend() ? std::nullopt : std::optional(*newest);
}

std::string newest_checkpoint_text(const fs::path& output_dir) {
  if (const auto newest = newest_checkpoint(output_dir))
    return "the last complete checkpoint is " + newest->path.string();
  std::vector<CheckpointFolder> weights = list_checkpoints(output_dir);
  std::error_code ignored;
  std::erase_if(weights, [&](const CheckpointFolder& one) { return fs::exists(state_folder(one.path), ignored); });
  if (weights.empty()) return "no checkpoint is complete yet";
  return fmt::format(
      "the newest checkpoint, {}, has only weights (save_only_model), so a new run can start from it, but no run can "
      "resume from it",
      weights.back().path.string());
}

std::optional<fs::path> find_checkpoint(const fs::path& output_dir, const std::string& value) {
  if (value == "true") {
    std::optional<fs::path> newest;
    const std::vector<CheckpointFolder> all = list_checkpoints(output_dir);
    for (const CheckpointFolder& one : all)
      if (fs::is_directory(state_folder(one.path))) newest = one.path;
    if (!newest && !all.empty()) throw_stateless(all.back().path);
    return newest;
  }
  fs::path folder = fs::path(value).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (!fs::is_directory(folder))
    throw UserError(
        "resume_from_checkpoint: the folder {} does not exist; give a checkpoint-N folder, or true for the newest in "
        "{}",
        folder.string(), output_dir.string());
  if (!fs::is_directory(state_folder(folder))) throw_stateless(folder);
  return folder;
}

std::vector<fs::path> delete_old_checkpoints(const fs::path& output_dir, int64_t limit, const fs::path& written,
                                             const fs::path& best) {
  std::vector<fs::path> deleted;
  if (limit <= 0) return deleted;
  const std::vector<CheckpointFolder> all = list_checkpoints(output_dir);
  const std::optional<CheckpointFolder> newest = newest_checkpoint(output_dir);
  int64_t excess = static_cast<int64_t>(all.size()) - limit;
  for (const CheckpointFolder& one : all) {
    if (excess <= 0) break;
    if (one.path == written || one.path == best || (newest && one.path == newest->path)) continue;
    remove_folder(one.path);
    deleted.push_back(one.path);
    --excess;
  }
  return deleted;
}

std::vector<fs::path> set_aside_after(const fs::path& output_dir, int64_t step) {
  std::vector<fs::path> aside;
  for (const CheckpointFolder& one : list_checkpoints(output_dir)) {
    if (one.step <= step) continue;
    fs::path name = fmt::format("{}{}", one.path.string(), kAside);
    for (int number = 2; fs::exists(name); ++number) name = fmt::format("{}{}-{}", one.path.string(), kAside, number);
    if (rename(one.path.c_str(), name.c_str()) != 0) throw_file_error("rename", one.path, errno);
    aside.push_back(name);
  }
  if (!aside.empty()) sync_path(output_dir);
  return aside;
}

std::vector<fs::path> abandoned_checkpoints(const fs::path& output_dir) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(output_dir, code), end; !code && it != end; it.increment(code)) {
    const std::string ending = it->path().extension().string();  // of "checkpoint-4.abandoned-2": ".abandoned-2"
    const bool named = ending == kAside || (ending.starts_with(kAside) && ending[kAside.size()] == '-' &&
                                            ending.find_first_not_of("0123456789", kAside.size() + 1) == ending.npos);
    std::error_code ignored;
    if (named && step_of(it->path().stem()) && it->is_directory(ignored) && is_own(it->path()))
      found.push_back(it->path());
  }
  return found;
}

}  // namespace fettle
