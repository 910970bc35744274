// Defines CheckpointWriter, which writes exact checkpoints while the run continues.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <string>

#include "base/limits/host_memory.h"
#include "checkpoint/saved/state.h"
#include "report/run_record.h"
#include "step/state/snapshot.h"
#include "train/processes.h"

namespace fettle {

// Writes output_dir/checkpoint-N completely or not at all. A checkpoint contains the result (write_result),
// trainer_state.json, and state/. The folder state/ has checkpoint_meta and the exact weights and optimizer state of
// the devices. With save_only_model, there is no state/. If load_best_model_at_end is set, too, there is weights/, with
// the exact weights alone. After a checkpoint is complete, deletes the oldest ones beyond save_total_limit.
//
// Training waits only while the arrays are copied to the host. Another thread then writes and hashes the files, flushes
// them to the disk and renames the folder. If the thread is still writing a checkpoint, the next save() first waits
// until that checkpoint is complete. If the copy does not fit into host memory, or arrays are on a disk (offload_dir),
// training waits until the files are written.
//
// With several processes, writing a checkpoint succeeds in all of them or fails in all of them.
//
// When a checkpoint cannot be written, the writer tries again a few times (retry.h). If the last attempt fails, the
// writer only warns: training continues, and later checkpoints are written as usual.
class CheckpointWriter {
 public:
  // All but `data` must outlive the writer. `free_memory` returns the free bytes of host memory; a copy may take 90 %
  // of them.
  CheckpointWriter(
      const Run& run, const ModelRepository& repository, DataIdentity data, const Processes& processes,
      std::function<int64_t()> free_memory = [] { return free_host_memory(); });
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  // waits for the checkpoint that is being written

  // `action` is called with the folder of each checkpoint that could not be written, on the thread of the caller of the
  // functions below.
  void on_failure(std::function<void(const std::filesystem::path& folder)> action) { failed_ = std::move(action); }
  // Saves a checkpoint. Returns the seconds that training waited. The checkpoint has what `record` is once it is known
  // whether the previous checkpoint could be written.
  double save(const TrainState& state, const RunRecord& record);
  // From now on, checkpoints beyond save_total_limit are not deleted. First waits as settle() does.
  void keep_old();
  // Prints a message when a checkpoint is complete; warns, once, when it could not be written.
  void check();
  // Waits until no checkpoint is being written, then does the same as check().
  void settle();
  // Waits for the last checkpoint, and throws UserError or DoesNotFit when it could not be written. Used when
  // the run must not end without this checkpoint.
  void require();

 private:
  struct Written {
    int64_t bytes = 0;
    double seconds = 0;
  };
  bool has_room(const TrainState& state) const;
  Written write(const std::filesystem::path& folder, int64_t step, const RunRecord& record, const FetchArray& fetch);
  Written write_once(const std::filesystem::path& folder, int64_t step, const RunRecord& record,
                     const FetchArray& fetch);
  // Does the work of write_once in a run of several processes. Each process writes its parts. The first process makes
  // the result from all parts and commits the folder.
  Written write_together(const std::filesystem::path& folder, int64_t step, const RunRecord& record,
                         const FetchArray& fetch);
  void delete_old(const std::filesystem::path& newest, const RunRecord& record) const;
  void finish(bool required);

  const Run& run_;
  const ModelRepository& repository_;
  const nlohmann::json base_;
  DataIdentity data_;
  const Processes& processes_;
  std::function<int64_t()> free_memory_;
  std::function<void(const std::filesystem::path&)> failed_;
  bool keeps_old_ = false;
  std::filesystem::path pending_;  // the checkpoint that is being written; empty: none
  struct {
    double total = 0, before = 0;  // seconds that training waited, in total and for the previous checkpoint
  } stall_;
  std::atomic<bool> hurried_ = false;  // true: save() waits for the write; a failed write is repeated only once
  std::future<Written> written_;
};

}  // namespace fettle
