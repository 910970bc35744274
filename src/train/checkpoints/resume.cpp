#include "train/checkpoints/resume.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "train/checkpoints/base_digest.h"
#include "train/checkpoints/checkpoint_meta.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Reads the manifest and the files' sizes only: a state may have terabytes, and every process of the run asks.
bool can_go_on_from(const fs::path& checkpoint, const Run& run, const Json& base) {
  try {
    StateReader state(state_folder(checkpoint));
    check_meta(state, run);
    check_base(state, base);
    read_record(state);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// Returns a text about another checkpoint from which the run can continue: its name, and how to select it. Prefers the
// newest of the earlier checkpoints, because the user may have been sent to this one by a later one that is damaged.
// Returns "" when there is none.
std::string another(const fs::path& checkpoint, const Run& run, const Json& base) {
  // The paths "checkpoint-4" and "out/checkpoint-4/" have the right parent_path() only in their canonical form.
  std::error_code unreadable;
  const fs::path refused = fs::canonical(checkpoint, unreadable);
  if (unreadable) return "";
  std::vector<CheckpointFolder> all = list_checkpoints(refused.parent_path());
  std::reverse(all.begin(), all.end());
  const auto at = std::ranges::find(all, refused, &CheckpointFolder::path);
  if (at != all.end()) std::rotate(all.begin(), at + 1, all.end());
  for (const CheckpointFolder& one : all)
    if (one.path != refused && one.complete && can_go_on_from(one.path, run, base))
      return fmt::format(
          "{} has all its files: continue from it with resume_from_checkpoint={}; if it is damaged, too, "
          "start a new run",
          one.path.filename().string(), one.path.string());
  return "";
}

[[noreturn]] void refuse_damaged(const DamagedState& error, const fs::path& checkpoint, const Run& run,
                                 const Json& base) {
  const std::string other = another(checkpoint, run, base);
  throw UserError("{}; {}", error.what(),
                  other.empty() ? "there is no other complete checkpoint: start a new run" : other);
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const Run& run, const ModelRepository& repository) {
  if (run.output.resume_from.empty()) return std::nullopt;
  const std::optional<fs::path> checkpoint = find_checkpoint(run.output.folder, run.output.resume_from);
  if (!checkpoint) {
    info("no checkpoint in {} yet: starting a new run", run.output.folder);
    return std::nullopt;
  }
  const Json base = base_identity(run, repository);
  try {
    ResumePoint point{*checkpoint, 0, StateReader(state_folder(*checkpoint)), {}};
    const StateReader& state = *point.state;
    check_meta(state, run);
    check_base(state, base);
    point.record = read_record(state);
    report_micro_batches(state, run);
    report_kernels(state, run);
    report_optim_args(state, run);
    report_remat(state, run);
    point.step = state.meta().at("step").get<int64_t>();
    return point;
  } catch (const DamagedState& error) {
    refuse_damaged(error, *checkpoint, run, base);
  } catch (const UserError& error) {
    const std::string other = another(*checkpoint, run, base);
    if (other.empty()) throw;
    throw UserError("{}; {}", error.what(), other);
  }
}

TrainState resume_state(ResumePoint& point, Devices& devices, const Run& run, const ModelRepository& repository) {
  try {
    TrainState state = load_state(devices, run, repository, *point.state, trained_arrays(run));
    point.state.reset();
    return state;
  } catch (const DamagedState& error) {
    refuse_damaged(error, point.checkpoint, run, base_identity(run, repository));
  }
}

}  // namespace fettle
