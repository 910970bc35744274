// Defines StepPrograms: the training step, compiled for each length of batches.
#pragma once

#include <map>

#include "programs/devices.h"
#include "run/run.h"
#include "step/memory_table.h"

namespace fettle {

class StepPrograms {
 public:
  struct Entry {
    Executable executable;
    int64_t flops;  // floating-point operations of one run over all devices
  };

  StepPrograms(Devices& devices, const Run& run) : devices_(devices), run_(run) {}

  // Returns the program for rows of `length` positions. Compiles it at the first call.
  const Entry& at(int64_t length);
  bool has(int64_t length) const { return entries_.contains(length); }
  // Returns how the step for that length uses a device's memory.
  MemoryTable memory(int64_t length);

 private:
  Devices& devices_;
  const Run& run_;
  std::map<int64_t, Entry> entries_;
};

}  // namespace fettle
