// Defines HostCopy: what moves between the host's memory and a device's.
#pragma once

#include "plan/compiled/hlo.h"

namespace fettle {

// Bytes that one execution of an instruction moves over the device's link to its host.
struct HostCopy {
  double to_device = 0, to_host = 0;
  bool any() const { return to_device + to_host > 0; }
};

// Of what reads or writes arrays in the host's memory: copies, slices, updates of a slice, fusions of them. Nothing for
// the rest, for what only renames or carries, and for what calls other computations one after the other.
HostCopy host_copy_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction);

// Of a step, loops multiplied. Loops whose trip count the compiler does not know count once.
struct HostTraffic {
  double to_device = 0, to_host = 0;        // bytes
  double executions = 0, asynchronous = 0;  // copies, and those of them that are started and awaited later
  double bytes() const { return to_device + to_host; }
};
HostTraffic host_traffic_of(const HloModule& module);

}  // namespace fettle
