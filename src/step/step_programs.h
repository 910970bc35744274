// Defines StepPrograms: the training step compiled for each length that batches come in.
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
    int64_t flops;  // of one run over all devices
  };

  StepPrograms(Devices& devices, const Run& run) : devices_(devices), run_(run) {}

  // Compiles at the first call for a length.
  const Entry& at(int64_t length);
  bool has(int64_t length) const { return entries_.contains(length); }
  // Where a device's memory goes in the step of that length.
  MemoryTable memory(int64_t length);

 private:
  Devices& devices_;
  const Run& run_;
  std::map<int64_t, Entry> entries_;
};

}  // namespace fettle
