// Defines MemoryShare: how much of a device's memory a program may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

// What a driver says of one device, in bytes.
struct DriverMemory {
  int64_t total = 0, free = 0;
};

// Of each device that is shown to this process, in the driver's order. `library` is a driver's: CUDA's ("libcuda.so.1")
// or HIP's ("libamdhip64.so.7"). Empty when it is not here, or does not answer.
std::vector<DriverMemory> driver_memory(const std::string& library);

// Bytes of one device. The default: nothing is known.
struct MemoryShare {
  int64_t total = 0;       // what its driver reports
  double utilization = 0;  // the share of it that is asked for (gpu_memory_utilization)
  int64_t allowance = 0;   // left for what no compiler sees: the driver's context, libraries, communication buffers
  int64_t others = 0;      // what other programs hold
  int64_t limit = 0;       // what this one may take

  bool known() const { return total > 0 || limit > 0; }
  int64_t asked() const { return static_cast<int64_t>(utilization * static_cast<double>(total)); }
  int64_t left() const { return total - allowance - others; }
  double fraction() const { return static_cast<double>(limit) / static_cast<double>(total); }
};

// The share of a device of which `used` bytes are in use, by others and a context of our own: the asked part, or what
// is left beside the allowance and other programs, if that is less. `devices` is how many the program runs on.
MemoryShare share_memory(const Vendor& vendor, int64_t total, int64_t used, double utilization, int64_t devices);

}  // namespace fettle
