// Defines MemoryTable: how a step uses one device's memory. The numbers are known before the step runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/size_text.h"
#include "data/batches/layout.h"
#include "run/run.h"
#include "runtime/compiled_program.h"
#include "runtime/vendors/device_memory.h"

namespace fettle {

// The bytes that a step uses in one device's memory and in the device's share of host memory. The bytes of weights,
// optimizer state and batch are computed from the shardings; the compiler reports the peak.
struct MemoryTable {
  std::string device;     // "cpu (1 device)"
  int64_t frozen = 0;     // frozen weights, including the reference model's
  int64_t trained = 0;    // the trained weights: adapters, or weights of the model
  bool adapters = false;  // whether the run trains an adapter
  int64_t optimizer = 0;  // optimizer state
  int64_t batch = 0;
  int64_t temporaries = 0;  // activations, gradients, scratch: the peak minus the figures above
  int64_t gradients = 0;    // upper limit, as if all gradients were f32; `temporaries` includes the gradients
  int64_t peak = 0;         // the largest use within the step, counted by the compiler
  MemoryShare share;        // how much of the device's memory the step may use
  // Host memory for this device. On the CPU, `peak` includes these bytes, because host memory is also device memory
  // there.
  int64_t host_frozen = 0, host_trained = 0, host_optimizer = 0;
  int64_t host_temporaries = 0;  // gradients and scratch: the compiler's count of host bytes, minus the three above

  // With offload_dir: `disk` is the size of the file for all devices. `disk_staging` is the host memory through which a
  // step reads and writes the file. The file has the optimizer state and, with offload_dir_weights, the layers' float32
  // weights.
  int64_t disk = 0, disk_staging = 0;
  bool disk_has_weights = false;

  int64_t head_room() const { return share.limit - peak; }
  int64_t host() const { return host_frozen + host_trained + host_optimizer + host_temporaries; }
  bool fits() const { return has_room_for(peak); }
  bool has_room_for(int64_t bytes) const { return !share.known() || bytes <= share.limit; }
};

// Returns the bytes that one device stores between steps: weights, optimizer state and the batch.
int64_t held_bytes(const Run& run, const BatchShape& shape);

// Returns the table of a compiled step. `stats` are the compiler's numbers for the step compiled for `shape`.
MemoryTable memory_table(const Run& run, const BatchShape& shape, const MemoryStats& stats, const MemoryShare& share,
                         std::string device);

// Returns the table of the arrays that stay in memory between steps. Compiles nothing. The step itself needs more
// memory.
MemoryTable held_table(const Run& run, const MemoryShare& share, std::string device);

// Formats a small table for people, with sizes in GB (10^9 bytes), MB or KB; no newline at the end.
std::string format_memory_table(const MemoryTable& table);
// Returns sizes in bytes: peak_bytes, limit_bytes, frozen_bytes, adapter_bytes, trained_bytes, ... (docs/plan.md).
nlohmann::json to_json(const MemoryTable& table);

// Returns whether arrays can move to the host's memory. A pipeline needs them on the devices. On the CPU, host memory
// is the device's memory.
bool can_offload(const Run& run);
// Returns whether quantization_bit: 4 is possible, and the frozen weights of LoRA are the largest entry of the table.
bool helps_to_quantise(const Run& run, const MemoryTable& table);
// Returns whether optim: adamw_8bit can replace AdamW in full tuning, and the optimizer state is the largest entry.
bool helps_to_use_8_bit_state(const Run& run, const MemoryTable& table);

// Throws DoesNotFit when the step does not fit into the device's memory. The message has the shortfall, the largest
// entry of the table, and changes of the recipe that reduce the step's memory.
void require_fit(const Run& run, const MemoryTable& table);

// Returns the largest use of one device's memory by an evaluation during training. `evaluation` has the compiler's
// numbers for the evaluation's program. The optimizer state of the training step (`table`) stays on the device.
int64_t evaluation_peak(const Run& run, const MemoryTable& table, const MemoryStats& evaluation);
// Returns "an evaluation needs 1.23 GB on each device (per_device_eval_batch_size: 8)".
std::string format_evaluation_peak(const Run& run, int64_t peak);
// Throws DoesNotFit when an evaluation with this peak does not fit into the device's memory. `table` is that of the
// training step.
void require_evaluation_fit(const Run& run, const MemoryTable& table, int64_t peak);

// Throws DoesNotFit when `processes` processes, each with `devices` devices with this table, need more than `free`
// bytes of host memory. The need of each process includes disk_staging. `free` is the host's free memory. If `free` is
// 0, the free memory is not known, and the check passes.
void require_host_fit(const MemoryTable& table, int64_t devices, int64_t free, int64_t processes = 1);

}  // namespace fettle
