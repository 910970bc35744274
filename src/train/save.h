// Defines CheckpointWriter, which writes exact checkpoints while the run continues.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "base/host_memory.h"
#include "report/log_files.h"
#include "step/state/snapshot.h"

namespace fettle {

// Writes output_dir/checkpoint-N completely or not at all. It contains the result in ResultWriter's format,
// trainer_state.json, and state/ (weights and optimizer state as on the devices, and checkpoint_meta). Then deletes the
// oldest checkpoints beyond save_total_limit.
//
// Training waits only while the arrays are copied to the host. Another thread hashes, writes, flushes and renames. It
// writes one checkpoint at a time; the next save() waits for it. When host memory has no room for the copy, training
// waits until the files are written from the devices.
class CheckpointWriter {
 public:
  // `free_memory`: bytes of host memory that a copy may take.
  CheckpointWriter(
      const Run& run, const ModelRepository& repository, DataIdentity data,
      std::function<int64_t()> free_memory = [] { return free_host_memory(); });
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // waits for the checkpoint that is being written

  // Saves a checkpoint. Returns the seconds that training waited. Throws like check().
  double save(const TrainState& state, const TrainerState& trainer);
  // Throws the error of a failed checkpoint, once. Prints a message when a checkpoint is complete.
  void check();
  // Waits until no checkpoint is being written. Throws like check().
  void wait();
  // The same, but only warns: for a run that ends with another error.
  void settle();

 private:
  struct Written {
    int64_t bytes = 0;
    double seconds = 0;
  };
  using Fetch = std::function<HostShards(const std::string& name)>;
  Written write(const std::filesystem::path& folder, int64_t step, const TrainerState& trainer, const Fetch& fetch);
  void finish();

  const Run& run_;
  const ModelRepository& repository_;
  const nlohmann::json base_;
  DataIdentity data_;
  std::function<int64_t()> free_memory_;
  std::filesystem::path pending_;  // the checkpoint that is being written; empty: none
  struct {
    double total = 0, before = 0;  // seconds that training waited; `before`: for the previous checkpoint
  } stall_;
  std::future<Written> written_;
};

}  // namespace fettle
