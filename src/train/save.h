// Defines CheckpointWriter: exact checkpoints of a run, written while it goes on.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "base/host_memory.h"
#include "report/run_record.h"
#include "step/state/snapshot.h"

namespace fettle {

// Writes output_dir/checkpoint-N, whole or not at all: the result as ResultWriter writes it, trainer_state.json, and
// state/ (weights and optimizer as they are on the devices, and checkpoint_meta), which save_only_model leaves out.
// Then deletes the oldest beyond save_total_limit.
//
// Training waits only while the arrays are copied to the host; another thread hashes, writes, flushes and renames. One
// checkpoint is written at a time, the next waits for it. Without room for the copy the files are written from the
// devices while training waits.
//
// A checkpoint that cannot be written is tried again a few times (retry.h), then given up with a warning: training goes
// on, and the next one has its turn at its step.
class CheckpointWriter {
 public:
  // `free_memory`: bytes of the host that a copy may take.
  CheckpointWriter(
      const Run& run, const ModelRepository& repository, DataIdentity data,
      std::function<int64_t()> free_memory = [] { return free_host_memory(); });
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // waits for the one being written

  // Returns the seconds that training waited.
  double save(const TrainState& state, const RunRecord& record);
  // Says so when a checkpoint is complete; warns, once, when it could not be written.
  void check();
  // The same, after waiting until none is being written.
  void settle();
  // Waits for the last checkpoint, and throws UserError or DoesNotFit when it could not be written: for a run that must
  // not end without it.
  void require();

 private:
  struct Written {
    int64_t bytes = 0;
    double seconds = 0;
  };
  using Use = std::function<void(const HostShards&)>;
  // Calls `use` with the array of that name. May be called for the same array again.
  using Fetch = std::function<void(const std::string& name, const Use& use)>;
  Written write(const std::filesystem::path& folder, int64_t step, const RunRecord& record, const Fetch& fetch);
  Written write_once(const std::filesystem::path& folder, int64_t step, const RunRecord& record, const Fetch& fetch);
  void finish(bool required);

  const Run& run_;
  const ModelRepository& repository_;
  const nlohmann::json base_;
  DataIdentity data_;
  std::function<int64_t()> free_memory_;
  std::filesystem::path pending_;  // the one being written; empty: none
  struct {
    double total = 0, before = 0;  // seconds that training waited for it; of them for the one before
  } stall_;
  std::atomic<bool> hurried_ = false;  // the next checkpoint waits: no more attempts
  std::future<Written> written_;
};

}  // namespace fettle
