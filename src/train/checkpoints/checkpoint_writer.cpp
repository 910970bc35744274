#include "train/checkpoints/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "train/checkpoints/base_digest.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/disk_space.h"
#include "train/result.h"
#include "train/retry.h"
#include "train/write_in_parts.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the folder of a checkpoint's exact arrays; empty if the checkpoint has none.
fs::path exact_folder(const Run& run, const fs::path& checkpoint) {
  if (!run.output.save_only_model) return state_folder(checkpoint);
  return run.best.load_at_end ? weights_folder(checkpoint) : fs::path();
}

std::vector<StateArray> exact_arrays(const Run& run) {
  return run.output.save_only_model ? result_arrays(run) : trained_arrays(run);
}

std::string not_saved(const std::string& name, const Error& error, const std::filesystem::path& output, bool required) {
  const auto kept = newest_checkpoint(output);
  const std::string last = newest_checkpoint_text(output);
  return fmt::format(
      "{} could not be saved: {}; {}{}", name, error.what(), required ? "" : "training continues; ",
      required && kept ? last + "; remove the cause, then continue with resume_from_checkpoint=true" : last);
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Run& run, const ModelRepository& repository, DataIdentity data,
                                   const Processes& processes, std::function<int64_t()> free_memory)
    : run_(run),
      repository_(repository),
      base_(base_identity(run, repository)),
      data_(std::move(data)),
      processes_(processes),
      free_memory_(std::move(free_memory)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    settle();
  } catch (const std::exception& error) {
    // A destructor must not throw. It may also run while another exception is handled, and the user must see both
    // errors.
    warn("{}", error.what());
  }
}

// Returns whether each host has memory for the copies of all processes that run on it.
bool CheckpointWriter::has_room(const TrainState& state) const {
  const int64_t sharers = processes_.several() ? processes_.run()->place().local_size : 1;
  const bool here = sharers * snapshot_bytes(run_, state) <= free_memory_() / 10 * 9;
  if (!processes_.several()) return here;
  const std::vector<std::string> all =
      processes_.agree("memory for a checkpoint", [&] { return std::string(here ? "yes" : "no"); });
  return std::ranges::count(all, "no") == 0;
}

double CheckpointWriter::save(const TrainState& state, const RunRecord& record) {
  const Clock::time_point start = Clock::now();
  hurried_ = true;
  settle();
  hurried_ = false;
  const double before = seconds_since(start);
  const fs::path path = checkpoint_path(run_.output.folder, state.step);
  // In two cases, training waits until the files are written: the arrays are on a disk, where the next step changes
  // them; or there is no memory for a copy.
  if (state.disk || !has_room(state)) {
    std::promise<Written> now;
    written_ = now.get_future();
    try {
      now.set_value(write(path, state.step, record, fetch_from(state)));
    } catch (...) {
      now.set_exception(std::current_exception());
    }
    pending_ = path;
    stall_ = {seconds_since(start), before};
    return stall_.total;
  }
  const auto snapshot = std::make_shared<const StateSnapshot>(take_snapshot(run_, state));
  written_ = std::async(std::launch::async, [this, folder = path, step = state.step, record, snapshot] {
    return write(folder, step, record, [&](const std::string& name, const auto& use) { use(snapshot->at(name)); });
  });
  pending_ = path;
  stall_ = {seconds_since(start), before};
  return stall_.total;
}

CheckpointWriter::Written CheckpointWriter::write(const fs::path& path, int64_t step, const RunRecord& record,
                                                  const FetchArray& fetch) {
  // All processes must make the same number of attempts. `hurried_` may differ between them, so it is not used here.
  if (processes_.several())
    return retry_files(path.filename().string(), [&] { return write_together(path, step, record, fetch); });
  return retry_files(
      path.filename().string(), [&] { return write_once(path, step, record, fetch); }, [&] { return hurried_.load(); });
}

void CheckpointWriter::delete_old(const fs::path& newest, const RunRecord& record) const {
  if (keeps_old_) return;
  try {
    delete_old_checkpoints(run_.output.folder, run_.output.save_total_limit, newest,
                           record.trainer.best_model_checkpoint);
  } catch (const Error& error) {
    warn("{}", error.what());  // the new checkpoint is complete although an old one could not be deleted
  }
}

CheckpointWriter::Written CheckpointWriter::write_once(const fs::path& path, int64_t step, const RunRecord& record,
                                                       const FetchArray& fetch) {
  const Clock::time_point start = Clock::now();
  AtomicFolder folder(path, AtomicFolder::Existing::kReplace);
  std::optional<StateWriter> state;
  if (const fs::path exact = exact_folder(run_, folder.path()); !exact.empty()) state.emplace(exact);
  // The arrays of the result are fetched once, for the result and for the state.
  std::set<std::string> added;
  write_result(folder.path(), run_, repository_, [&](const std::string& name, const auto& use) {
    const bool adds = state && added.insert(name).second;
    fetch(name, [&](const HostShards& array) {
      if (adds) write_array(*state, name, array);
      use(array);
    });
  });
  if (state) {
    std::vector<StateArray> rest = exact_arrays(run_);
    std::erase_if(rest, [&](const StateArray& array) { return added.contains(array.name); });
    write_state(*state, rest, fetch);
  }
  const std::string log = to_json(record.trainer);
  write_file(folder.path() / "trainer_state.json", log);
  if (state) state->finish(checkpoint_meta(run_, step, base_, data_, record, log));
  folder.commit();
  delete_old(path, record);
  return {checkpoint_bytes(run_, repository_), seconds_since(start)};
}

CheckpointWriter::Written CheckpointWriter::write_together(const fs::path& path, int64_t step, const RunRecord& record,
                                                           const FetchArray& fetch) {
  const Clock::time_point start = Clock::now();
  const std::string name = path.filename().string();
  std::optional<AtomicFolder> folder;
  write_in_parts(
      processes_, name,
      [&] {
        folder.emplace(path, AtomicFolder::Existing::kReplace);
        const fs::path exact = exact_folder(run_, fs::absolute(folder->path()));
        return exact.empty() ? state_folder(fs::absolute(folder->path())) : exact;
      },
      [&](StateWriter& own) { write_state(own, exact_arrays(run_), fetch); },
      [&](StateWriter& all) {
        const fs::path working = folder->path(), exact = exact_folder(run_, working);
        const std::string log = to_json(record.trainer);
        all.finish(checkpoint_meta(run_, step, base_, data_, record, log));
        {
          StateReader state(exact.empty() ? state_folder(working) : exact);
          write_result(working, run_, repository_, state);
        }
        if (exact.empty()) fs::remove_all(state_folder(working));
        write_file(working / "trainer_state.json", log);
        folder->commit();
      });
  if (processes_.first()) delete_old(path, record);
  return {checkpoint_bytes(run_, repository_), seconds_since(start)};
}

void CheckpointWriter::check() {
  if (!pending_.empty() && written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish(false);
}

void CheckpointWriter::settle() {
  if (!pending_.empty()) finish(false);
}

void CheckpointWriter::keep_old() {
  settle();  // so that no other thread reads keeps_old_
  keeps_old_ = true;
}

void CheckpointWriter::require() {
  if (!pending_.empty()) finish(true);
}

void CheckpointWriter::finish(bool required) {
  const fs::path path = std::exchange(pending_, {});
  const std::string name = path.filename().string();
  auto failed = [&](const Error& error) {
    if (failed_) failed_(path);
    return not_saved(name, error, run_.output.folder, required);
  };
  try {
    const Written written = written_.get();
    info("{} saved: {}; training waited {:.0f} ms{}, writing took {:.0f} ms", name, size_text(written.bytes),
         1000 * stall_.total,
         stall_.before < 1e-3 ? ""
                              : fmt::format(" ({:.0f} ms of this for the previous checkpoint)", 1000 * stall_.before),
         1000 * written.seconds);
  } catch (const DoesNotFit& error) {  // the disk is full
    if (required) throw DoesNotFit("{}", failed(error));
    warn("{}", failed(error));
  } catch (const UserError& error) {
    if (required) throw UserError("{}", failed(error));
    warn("{}", failed(error));
  }
}

}  // namespace fettle
