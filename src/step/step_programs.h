// Defines StepPrograms: the training step, compiled for each batch shape when the shape first occurs.
#pragma once

#include <deque>

#include "programs/devices.h"
#include "run/run.h"
#include "step/memory/memory_table.h"

namespace fettle {

class StepPrograms {
 public:
  struct Entry {
    BatchShape shape;
    Executable executable;
    double flops;    // floating-point operations of one step over all devices, when all micro-batches are used
    int64_t stages;  // number of pipeline stages; 1 without a pipeline
    // Returns the floating-point operations of a step that uses `used` micro-batches. Unlike `flops`, does not count
    // the operations of a pipeline stage that has no micro-batch.
    double flops_of(int64_t used) const {
      return flops * static_cast<double>(used) / static_cast<double>(shape.micro_batches + stages - 1);
    }
  };

  StepPrograms(Devices& devices, const Run& run) : devices_(devices), run_(run) {}

  // Returns the program for batches of this shape. Compiles it at the first call.
  const Entry& at(const BatchShape& shape);
  bool has(const BatchShape& shape) const { return find(shape) != nullptr; }
  // Returns how the step for that shape uses a device's memory.
  MemoryTable memory(const BatchShape& shape);

 private:
  Devices& devices_;
  const Run& run_;
  // Returns the entry for the shape; null when there is none. The entry may have been compiled for another number of
  // sequences. Only packed steps differ in this number. Neither their loss nor NEFTune's noise depends on it.
  const Entry* find(const BatchShape& shape) const;
  std::deque<Entry> entries_;
};

}  // namespace fettle
