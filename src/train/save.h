// Defines CheckpointWriter: exact checkpoints of a run, written while it goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "base/host_memory.h"
#include "report/run_record.h"
#include "step/state/snapshot.h"

namespace fettle {

// Writes output_dir/checkpoint-N, whole or not at all: the result as ResultWriter writes it, trainer_state.json, and
// state/ (weights and optimizer as they are on the devices, and checkpoint_meta). Then deletes the oldest beyond
// save_total_limit.
//
// Training waits only while the arrays are copied to the host; another thread hashes, writes, flushes and renames. One
// checkpoint is written at a time, the next waits for it. Without room for the copy the files are written from the
// devices while training waits.
class CheckpointWriter {
 public:
  // `free_memory`: bytes of the host that a copy may take.
  CheckpointWriter(
      const Run& run, const ModelRepository& repository, DataIdentity data,
      std::function<int64_t()> free_memory = [] { return free_host_memory(); });
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // waits for the one being written

  // Returns the seconds that training waited. Throws what check() throws.
  double save(const TrainState& state, const RunRecord& record);
  // Throws the error of a checkpoint that could not be written, once; says so when one is complete.
  void check();
  // Until none is being written; throws as check().
  void wait();
  // The same, but only warns: for a run that ends with another error.
  void settle();

 private:
  struct Written {
    int64_t bytes = 0;
    double seconds = 0;
  };
  using Fetch = std::function<HostShards(const std::string& name)>;
  Written write(const std::filesystem::path& folder, int64_t step, const RunRecord& record, const Fetch& fetch);
  void finish();

  const Run& run_;
  const ModelRepository& repository_;
  const nlohmann::json base_;
  DataIdentity data_;
  std::function<int64_t()> free_memory_;
  std::filesystem::path pending_;  // the one being written; empty: none
  struct {
    double total = 0, before = 0;  // seconds that training waited for it; of them for the one before
  } stall_;
  std::future<Written> written_;
};

}  // namespace fettle
