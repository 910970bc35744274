// Defines HostCopy: transfers between host memory and a device's memory.
#pragma once

#include "plan/compiled/hlo.h"

namespace fettle {

// Bytes that one execution of an instruction transfers over the link between host and device.
struct HostCopy {
  double to_device = 0, to_host = 0;
  bool any() const { return to_device + to_host > 0; }
};

// Returns the bytes of an instruction that reads or writes arrays in host memory: a copy, a slice, an update of a
// slice, or a fusion of these. Returns zeros for all other instructions, including those that only rename or forward
// values and those that call other computations in sequence.
HostCopy host_copy_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

// The transfers of one step, multiplied by the loops' trip counts; an unknown trip count counts as 1.
struct HostTraffic {
  double to_device = 0, to_host = 0;        // bytes
  double executions = 0, asynchronous = 0;  // number of copies; number of asynchronous copies (awaited later)
  double bytes() const { return to_device + to_host; }
};
HostTraffic host_traffic_of(const HloModule& module);

}  // namespace fettle
