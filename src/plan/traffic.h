// Defines Traffic: the bytes that a step's collectives move, by kind and mesh axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/hlo.h"

namespace fettle {

// One row: the collectives of one kind over the same mesh axes. Bytes are of one step.
//
// With n devices in a group and B bytes of the whole array (result of an all-gather, operand of the others), one device
// sends, by a ring or directly to each peer alike:
//   all-gather, reduce-scatter, all-to-all  B (n-1)/n
//   all-reduce                              2 B (n-1)/n
//   collective-permute                      B
// Of a group that lies on several hosts, m devices on each, a ring for every device of a host leaves by that device's
// own network share: a device sends 1/m of its bytes over the network and the rest over the host's links. All-to-all
// sends (n-m)/(n-1) of its bytes over the network, a permute all bytes of the pairs that cross.
struct Traffic {
  std::string collective;  // "all-gather"
  std::string axes;        // "fsdp", "dp+fsdp"; "part of fsdp" when a group is only a part of an axis
  int64_t group = 1;       // devices in a group
  bool across_hosts = false;
  int64_t executions = 0;    // a step, loops multiplied
  int64_t asynchronous = 0;  // of the executions
  double payload_bytes = 0;  // B summed over the executions
  double link_bytes = 0;     // one device sends over the links of its host
  double network_bytes = 0;  // one device sends to other hosts
  double sent_bytes() const { return link_bytes + network_bytes; }
};

// The largest rows first. `mesh` numbers the devices row-major; those of a host follow each other.
// Loops whose trip count the compiler does not know count once.
std::vector<Traffic> traffic_of(const HloModule& module, const MeshAxes& mesh, int64_t devices_per_host);

// What one device sends in a step, over links and network.
double collective_bytes(const std::vector<Traffic>& rows);

}  // namespace fettle
