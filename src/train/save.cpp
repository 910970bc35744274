#include "train/save.h"

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "checkpoint/files.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "train/base_digest.h"
#include "train/checkpoint_meta.h"
#include "train/result.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

std::string not_saved(const std::string& name, const Error& error, const std::filesystem::path& output) {
  const auto kept = newest_checkpoint(output);
  return fmt::format("{} could not be saved: {}; {}", name, error.what(),
                     kept ? fmt::format("the last complete checkpoint is {}: mend this and go on with "
                                        "resume_from_checkpoint=true",
                                        kept->path.string())
                          : "no checkpoint is complete yet");
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Run& run, const ModelRepository& repository, DataIdentity data,
                                   std::function<int64_t()> free_memory)
    : run_(run),
      repository_(repository),
      base_(base_identity(run, repository)),
      data_(std::move(data)),
      free_memory_(std::move(free_memory)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    // Another error is on its way to the user, who must see both.
    warn("{}", error.what());
  }
}

double CheckpointWriter::save(const TrainState& state, const RunRecord& record) {
  const Clock::time_point start = Clock::now();
  wait();
  const double before = seconds_since(start);
  const fs::path path = checkpoint_path(run_.output.folder, state.step);
  if (snapshot_bytes(run_) > free_memory_() / 10 * 9) {
    std::promise<Written> now;
    written_ = now.get_future();
    try {
      now.set_value(write(path, state.step, record,
                          [&](const std::string& name) { return download_shards(state.buffers.at(name)); }));
    } catch (...) {
      now.set_exception(std::current_exception());
    }
    pending_ = path;
    stall_ = {seconds_since(start), before};
    finish();
    return stall_.total;
  }
  const auto snapshot = std::make_shared<Snapshot>(take_snapshot(run_, state));
  written_ = std::async(std::launch::async, [this, folder = path, step = state.step, record, snapshot] {
    return write(folder, step, record, [&](const std::string& name) {
      return std::move(snapshot->extract(name).mapped());  // its memory goes as soon as it is written
    });
  });
  pending_ = path;
  stall_ = {seconds_since(start), before};
  return stall_.total;
}

CheckpointWriter::Written CheckpointWriter::write(const fs::path& path, int64_t step, const RunRecord& record,
                                                  const Fetch& fetch) {
  const Clock::time_point start = Clock::now();
  AtomicFolder folder(path, AtomicFolder::Existing::kReplace);
  ResultWriter result(folder.path(), run_, repository_);
  StateWriter state(state_folder(folder.path()));
  auto add = [&](const std::string& name) {
    HostShards array = fetch(name);
    for (const HostShards::Shard& shard : array.shards)
      state.add(name, array.shape, shard.box, {shard.bytes.data(), static_cast<size_t>(shard.bytes.bytes())});
    return array;
  };
  for (const Param& param : run_.trained) {
    const HostShards weights = add(trained_input(param));
    if (run_.pissa && param.is_lora())
      result.add(param, weights, add(start_array(param)));
    else
      result.add(param, weights);
    for (const StateArray& array : optimizer_state(run_, param)) add(array.name);
  }
  if (run_.scales_loss()) add(kLossScale);
  result.finish();
  const std::string log = to_json(record.trainer);
  write_file(folder.path() / "trainer_state.json", log);
  state.finish(checkpoint_meta(run_, step, base_, data_, log, record.sums));
  folder.commit();
  try {
    delete_old_checkpoints(run_.output.folder, run_.output.save_total_limit, path);
  } catch (const Error& error) {
    warn("{}", error.what());  // this checkpoint is complete all the same
  }
  return {snapshot_bytes(run_) + result_bytes(run_), seconds_since(start)};
}

void CheckpointWriter::check() {
  if (!pending_.empty() && written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish();
}

void CheckpointWriter::wait() {
  if (!pending_.empty()) finish();
}

void CheckpointWriter::settle() {
  try {
    wait();
  } catch (const Error& error) {
    warn("{}", error.what());
  }
}

void CheckpointWriter::finish() {
  const std::string name = std::exchange(pending_, {}).filename().string();
  try {
    const Written written = written_.get();
    info("{} saved: {}; training waited {:.0f} ms{}, writing took {:.0f} ms", name, size_text(written.bytes),
         1000 * stall_.total,
         stall_.before < 1e-3 ? "" : fmt::format(" ({:.0f} for the one before)", 1000 * stall_.before),
         1000 * written.seconds);
  } catch (const DoesNotFit& error) {  // the disk is full
    throw DoesNotFit("{}", not_saved(name, error, run_.output.folder));
  } catch (const UserError& error) {
    throw UserError("{}", not_saved(name, error, run_.output.folder));
  }
}

}  // namespace fettle
