// Defines Traffic: the bytes that a step's collectives move, by kind and mesh axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/compiled/hlo.h"

namespace fettle {

// One execution of one collective, as one of its devices sees it.
//
// With n devices in a group and B bytes of payload, one device sends, by a ring or directly to each peer alike:
//   all-gather (B: result), reduce-scatter, all-to-all (B: operand)  B (n-1)/n
//   all-reduce                                                       2 B (n-1)/n
//   collective-permute, collective-broadcast                         B
// Of a group that lies on several hosts, m devices on each, every device of a host closes one ring over the network: it
// sends 1/m of its bytes over its own share of the network and the rest over the host's links. Of an all-to-all
// B (n-m)/n go over the network. A permute goes over the network when one of its pairs does.
struct Transfer {
  std::string collective;    // "all-gather"
  std::string axes;          // "fsdp", "dp+fsdp"; "part of fsdp" when a group is less than the axes' devices
  int64_t group = 1;         // n
  int64_t on_host = 1;       // m
  double payload_bytes = 0;  // B
  double link_bytes = 0;     // one device sends over the links of its host
  double network_bytes = 0;  // one device sends to other hosts
  bool across_hosts() const { return on_host < group; }
};

// Nothing when the instruction is no collective or joins no two devices. "all-gather-start" and the like count,
// "async-start" does not: the collective is in the computation it calls. `mesh` numbers the devices row-major; those of
// a host follow each other.
std::optional<Transfer> transfer_of(const HloComputation& computation, const HloInstruction& instruction,
                                    int64_t devices, const MeshAxes& mesh, int64_t devices_per_host);

// One row: the collectives of one kind over the same devices. Bytes are of one step.
struct Traffic {
  std::string collective, axes;  // as in Transfer
  int64_t group = 1;
  bool across_hosts = false;
  double executions = 0;    // a step, loops multiplied
  double asynchronous = 0;  // of the executions: those that are started, and awaited later
  double payload_bytes = 0, link_bytes = 0, network_bytes = 0;
  double sent_bytes() const { return link_bytes + network_bytes; }
};

// The largest rows first. Loops whose trip count the compiler does not know count once, every branch of a conditional
// counts.
std::vector<Traffic> traffic_of(const HloModule& module, const MeshAxes& mesh, int64_t devices_per_host);

// What one device sends in a step, over links and network.
double collective_bytes(const std::vector<Traffic>& rows);

}  // namespace fettle
