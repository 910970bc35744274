// Defines Traffic: the bytes that a step's collectives move, by kind and mesh axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/compiled/hlo.h"

namespace fettle {

// The bytes that one device sends in one execution of a collective.
//
// With n devices in a group and B bytes of payload, one device sends these bytes (in a ring, or directly to each peer):
//   all-gather (B: result), reduce-scatter, all-to-all (B: operand)  B (n-1)/n
//   all-reduce                                                       2 B (n-1)/n
//   collective-permute, collective-broadcast                         B
// When a group has m devices on each of several hosts, its devices form m rings over the network, each with one device
// of every host. A device sends 1/m of its bytes over its share of the network and the other bytes over the host's
// links. In an all-to-all, B (n-m)/n bytes go over the network. A permute uses the network when one of its pairs
// (source, target) crosses hosts.
struct Transfer {
  std::string collective;    // "all-gather"
  std::string axes;          // "fsdp", "dp+fsdp"; "part of fsdp" when a group has fewer devices than the axes
  int64_t group = 1;         // n
  int64_t on_host = 1;       // m
  double payload_bytes = 0;  // B
  double link_bytes = 0;     // sent by one device over the links of its host
  double network_bytes = 0;  // sent by one device to other hosts
  bool across_hosts() const { return on_host < group; }
};

// Returns the transfer of a collective. Returns nullopt when the instruction is not a collective, or when no two
// devices exchange data. "all-gather-start" and similar opcodes are collectives. "async-start" is not: the collective
// is in the computation that it calls. `mesh` numbers the devices row-major; the devices of a host have consecutive
// numbers.
std::optional<Transfer> transfer_of(const HloComputation& computation, const HloInstruction& instruction,
                                    int64_t devices, const MeshAxes& mesh, int64_t devices_per_host);

// One table row: the collectives of one kind over the same devices. Bytes are those of one step.
struct Traffic {
  std::string collective, axes;  // with the same meaning as in Transfer
  int64_t group = 1;
  bool across_hosts = false;
  double executions = 0;    // per step, multiplied by the loops' trip counts
  double asynchronous = 0;  // number of executions that are asynchronous (awaited later)
  double payload_bytes = 0, link_bytes = 0, network_bytes = 0;
  double sent_bytes() const { return link_bytes + network_bytes; }
};

// Returns the table rows; the row with the most bytes comes first. An unknown trip count counts as 1; every branch of a
// conditional counts.
std::vector<Traffic> traffic_of(const HloModule& module, const MeshAxes& mesh, int64_t devices_per_host);

// Returns the bytes that one device sends in a step, over links and network.
double collective_bytes(const std::vector<Traffic>& rows);

}  // namespace fettle
