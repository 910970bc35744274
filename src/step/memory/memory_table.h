// Defines MemoryTable: how a step uses one device's memory. The numbers are known before the step runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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

// Returns the table of the weights and the optimizer state. Compiles nothing. The step itself needs more memory. The
// batch does not count, because its size depends on the rows.
MemoryTable held_table(const Run& run, const MemoryShare& share, std::string device);

// A part of the peak: "optimizer state".
struct MemoryLine {
  std::string what;
  int64_t bytes = 0;
};
// Returns the parts of the peak, without parts that the run does not have.
std::vector<MemoryLine> memory_lines(const MemoryTable& table);
// Explains the limit on a GPU's memory: "(of 85.00 GB, gpu_memory_utilization: 0.95)".
std::string describe(const MemoryShare& share);

// Formats a small table for people, with sizes in GB (10^9 bytes), MB or KB; no newline at the end.
std::string format_memory_table(const MemoryTable& table);
// Returns sizes in bytes: peak_bytes, limit_bytes, frozen_bytes, adapter_bytes, trained_bytes, ... (docs/plan.md).
nlohmann::json to_json(const MemoryTable& table);

}  // namespace fettle
