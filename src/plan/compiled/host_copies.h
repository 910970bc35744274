// Defines HostCopy: transfers between host memory and a device's memory.
#pragma once

#include "plan/compiled/hlo.h"

namespace fettle {

// Bytes that one execution of an instruction transfers over the link between host and device.
struct HostCopy {
  double to_device = 0, to_host = 0;
  bool any() const { return to_device + to_host > 0; }
};

// Returns the transfers of instructions that read or write arrays in host memory: copies, slices, updates of a slice,
// and fusions of these. Returns zeros for other instructions, also for those that only rename or forward values or that
// call other computations in sequence.
HostCopy host_copy_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

// The transfers of one step, multiplied by the loops' trip counts; an unknown trip count counts as 1.
struct HostTraffic {
  double to_device = 0, to_host = 0;        // bytes
  double executions = 0, asynchronous = 0;  // copies, and how many of them are started and awaited later
  double bytes() const { return to_device + to_host; }
};
HostTraffic host_traffic_of(const HloModule& module);

}  // namespace fettle
