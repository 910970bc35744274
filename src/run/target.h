// Defines RunTarget: the devices that a run is resolved for. They are known before a graph is built.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kernels.h"

namespace fettle {

class Devices;

// The memory that a step may take on each device.
struct StepRoom {
  int64_t bytes = 0;      // 0: not known
  std::string rule = {};  // "three quarters of the host's free memory"
};

struct RunTarget {
  int64_t count = 1;
  std::string platform = "cpu";  // the vendor's name in docs/targets.md: cpu, cuda, rocm
  std::string title = "cpu (1 device)";
  std::string capability = {};  // capability of a device, as in DeviceInfo; empty: the plugin does not report it
  KernelSet kernels = {};       // kernels that programs for these devices may call
  StepRoom room = {};

  bool on_host() const;  // the devices are the host's own processors
};

// Returns the devices as a run's target. `kernels` has the requested kernels that compute correctly on these devices.
// For CPU devices, `room` is a share of the host's free memory. For other devices, `room` is the device's limit. Throws
// DeviceError when the devices compute wrong results.
RunTarget target_of(const Devices& devices);

// Returns how many bytes each of `devices` CPU devices may take. They share the host's memory: together they may take
// three quarters of the free memory, and they leave at least 1 GB free.
int64_t host_room(int64_t free_bytes, int64_t devices);

}  // namespace fettle
