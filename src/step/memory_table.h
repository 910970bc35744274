// Defines MemoryTable: where one device's memory goes in a step, known from the compiled program before it runs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/size_text.h"
#include "run/run.h"
#include "runtime/compiled_program.h"
#include "runtime/vendors/device_memory.h"

namespace fettle {

// Bytes of one device, and of its share of the host's memory. Weights, optimizer state and batch are counted from the
// shardings; the peak is the compiler's.
struct MemoryTable {
  std::string device;     // "cpu (1 device)"
  int64_t frozen = 0;     // base weights
  int64_t trained = 0;    // adapters, or all weights
  bool adapters = false;  // what `trained` is
  int64_t optimizer = 0;  // the state of the update rule
  int64_t batch = 0;
  int64_t temporaries = 0;  // activations, gradients, scratch: what the compiler adds to the above
  int64_t gradients = 0;    // f32, part of temporaries: they live inside the step only
  int64_t peak = 0;         // the compiler's count at the worst moment
  MemoryShare share;        // what the step may take of the device
  // In the host's memory, of this device: not among the above.
  int64_t host_frozen = 0, host_trained = 0, host_optimizer = 0;
  int64_t host_temporaries = 0;  // gradients: what the compiler adds to those three

  int64_t head_room() const { return share.limit - peak; }
  int64_t host() const { return host_frozen + host_trained + host_optimizer + host_temporaries; }
  bool fits() const { return !share.known() || peak <= share.limit; }
};

// Bytes of one device that are there before and after a step: weights, optimizer state and the batch.
int64_t held_bytes(const Run& run, int64_t length);

// `length`: positions of a row, as given to build_train_step. `stats` are the compiled step's.
MemoryTable memory_table(const Run& run, int64_t length, const MemoryStats& stats, const MemoryShare& share,
                         std::string device);

// What is there before a step starts, known without compiling: the step itself needs more.
MemoryTable held_table(const Run& run, const MemoryShare& share, std::string device);

// A small table for people, sizes in GB (10^9 bytes), MB or KB; no newline at the end.
std::string format_memory_table(const MemoryTable& table);
// Sizes in bytes: peak_bytes, limit_bytes, frozen_bytes, adapter_bytes, trained_bytes, ... (docs/plan.md).
nlohmann::json to_json(const MemoryTable& table);

// Throws DoesNotFit with the shortfall, the largest part and which keys make it smaller, unless the table fits.
void require_fit(const Run& run, const MemoryTable& table);
// The same of the host: `free` bytes for the shares of `devices` devices. Passes when `free` is 0: not known.
void require_host_fit(const MemoryTable& table, int64_t devices, int64_t free);

}  // namespace fettle
