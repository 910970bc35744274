#include "train/resume.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "train/base_digest.h"
#include "train/checkpoint_meta.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool can_go_on_from(const fs::path& checkpoint, const Job& job, const Json& base) {
  try {
    StateReader state(state_folder(checkpoint));
    check_meta(state, job);
    check_base(state, base);
    check_trainer_state(state);
    state.verify();
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// The newest other one, with words on how to take it.
std::string another(const fs::path& checkpoint, const Job& job, const Json& base) {
  // "checkpoint-4" alone, and "out/checkpoint-4/", have their neighbours as well.
  std::error_code unreadable;
  const fs::path refused = fs::canonical(checkpoint, unreadable);
  if (unreadable) return "";
  std::vector<CheckpointFolder> all = list_checkpoints(refused.parent_path());
  std::reverse(all.begin(), all.end());
  for (const CheckpointFolder& one : all)
    if (one.path != refused && one.complete && can_go_on_from(one.path, job, base))
      return fmt::format("{} is complete: go on from it with resume_from_checkpoint={}", one.path.filename().string(),
                         one.path.string());
  return "";
}

[[noreturn]] void refuse_damaged(const DamagedState& error, const fs::path& checkpoint, const Job& job,
                                 const Json& base) {
  const std::string other = another(checkpoint, job, base);
  throw UserError("{}; {}", error.what(),
                  other.empty() ? "there is no other complete checkpoint to go on from: start afresh" : other);
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const Job& job, const ModelRepository& repository) {
  const Recipe& recipe = job.recipe;
  if (recipe.resume_from_checkpoint.empty()) return std::nullopt;
  const std::optional<fs::path> checkpoint = find_checkpoint(recipe.output_dir, recipe.resume_from_checkpoint);
  if (!checkpoint) {
    info("no checkpoint in {} yet: starting afresh", recipe.output_dir);
    return std::nullopt;
  }
  const Json base = base_identity(job, repository);
  try {
    ResumePoint point{*checkpoint, 0, StateReader(state_folder(*checkpoint))};
    check_meta(point.state, job);
    check_base(point.state, base);
    check_trainer_state(point.state);
    point.step = point.state.meta().at("step").get<int64_t>();
    for (const CheckpointFolder& one : list_checkpoints(recipe.output_dir))
      if (one.step > point.step)
        warn("{} is of a later step than the one this run goes on from; it is replaced when its step comes",
             one.path.string());
    return point;
  } catch (const DamagedState& error) {
    refuse_damaged(error, *checkpoint, job, base);
  } catch (const UserError& error) {
    const std::string other = another(*checkpoint, job, base);
    if (other.empty()) throw;
    throw UserError("{}; {}", error.what(), other);
  }
}

TrainState resume_state(ResumePoint& point, Devices& devices, const Job& job, const ModelRepository& repository) {
  try {
    return load_state(devices, job, repository, point.state);
  } catch (const DamagedState& error) {
    refuse_damaged(error, point.checkpoint, job, base_identity(job, repository));
  }
}

}  // namespace fettle
