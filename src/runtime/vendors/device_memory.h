// Defines what a vendor's driver says about the devices that this process can see, and MemoryShare: how much of a
// device's memory a program may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

// The memory of one device as its driver reports it, in bytes.
struct DriverMemory {
  int64_t total = 0, free = 0;
};

// Both functions below take the driver's library: CUDA's ("libcuda.so.1") or HIP's ("libamdhip64.so.7"). They return an
// empty list when the library is missing or reports an error.

// Returns a name for each device that this process can see, in the driver's order. Two devices of a host have different
// names, and a device has the same name in every process. The parts of a device have the same name, unless
// Driver::names_parts is set. A name is "" if the driver does not tell. Makes no context on
// a device, so the call works for devices that another process holds.
std::vector<std::string> driver_devices(const std::string& library);
// Returns the memory of the devices with these numbers, or of all devices if `devices` is empty.
std::vector<DriverMemory> driver_memory(const std::string& library, std::vector<int64_t> devices = {});

// How much of one device's memory this program may use, in bytes. All members are zero when the memory is not known. If
// only the plugin's allocator reports a limit, only `limit` is set.
struct MemoryShare {
  int64_t total = 0;       // memory that the driver reports
  double utilization = 0;  // requested share of `total` (gpu_memory_utilization)
  int64_t allowance = 0;   // memory that compilers do not count: for the driver, libraries and communication
  int64_t others = 0;      // memory in use by other programs
  int64_t limit = 0;       // bytes that this program may use

  bool known() const { return total > 0 || limit > 0; }
  int64_t requested() const { return static_cast<int64_t>(utilization * static_cast<double>(total)); }
  int64_t available() const { return total - allowance - others; }
  // Returns the same memory with another requested share. Its limit is the smaller one of requested() and available(),
  // but at least 0.
  MemoryShare with_utilization(double share) const;
  double fraction() const { return static_cast<double>(limit) / static_cast<double>(total); }
};

// Returns the share of a device with `total` bytes. Other programs and this program's context use `used` bytes of this
// memory. `devices` is the number of devices that the program runs on.
MemoryShare share_memory(const Vendor& vendor, int64_t total, int64_t used, double utilization, int64_t devices);

}  // namespace fettle
