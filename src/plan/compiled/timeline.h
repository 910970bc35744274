// Defines Timeline: how long a step may take, reckoned from the compiler's own schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/compiled/hlo.h"
#include "plan/compiled/traffic.h"
#include "runtime/vendors/targets.h"

namespace fettle {

// What the estimate takes for granted beside the data sheet's figures.
struct Assumptions {
  double arithmetic_share = 0.6;    // of the peak rate, reached by matrix products
  double memory_share = 0.8;        // of the memory's bandwidth
  double link_share = 0.75;         // of the bandwidth of links, network and the link to the host
  double kernel_seconds = 3e-6;     // a kernel takes at least
  double transfer_seconds = 20e-6;  // a collective takes this and its bytes
  // Trips of a loop over blocks of experts' tokens, which only the router knows; 0: there is none. See balanced_blocks.
  int64_t expert_blocks = 0;
};

// One sentence each for people, with the figures.
std::vector<std::string> describe(const Assumptions& assumptions);

// What one place of the model adds to a step.
struct Contributor {
  std::string op_name;  // "grad/layers/self_attn.q_proj"
  std::string work;     // "arithmetic", "memory" (or launches), or a transfer: "all-gather over fsdp"
  double seconds = 0;
  double exposed_seconds = 0;  // of a transfer: the part that nothing hides; else all of it
};

// Seconds and bytes are of one device and one step.
struct Timeline {
  double seconds = 0;             // the estimate: arithmetic + memory + exposed
  double arithmetic_seconds = 0;  // of instructions that arithmetic limits
  double memory_seconds = 0;      // of instructions that memory or their launch limits
  double transfer_seconds = 0;    // of collectives and copies from and to the host: hidden + exposed
  double hidden_seconds = 0;      // transfers behind arithmetic and memory
  double exposed_seconds = 0;     // the device waits for transfers
  // Below each of these the hardware cannot go, whatever the schedule: the data sheet's rate of one resource alone.
  double arithmetic_bound = 0, memory_bound = 0, link_bound = 0, host_bound = 0;
  double flops = 0;  // matrix products and convolutions
  double memory_bytes = 0;
  double link_bytes = 0, network_bytes = 0;
  std::vector<Contributor> largest;  // by exposed seconds, at most 12
  std::vector<std::string>
      unknown_loops;        // counted once, other than blocks of experts: the compiler does not know their trip count
  Assumptions assumptions;  // that it was reckoned with
  std::vector<std::string> unknown_kernels;  // custom calls whose arithmetic is not known; their memory counts
};

// The seconds of a transfer by the target's links and network, each at its share of the data sheet's bandwidth. Where
// links go from device to device (target.link_peers), a group uses those between its own devices only.
double seconds_of(const Transfer& transfer, const Target& target, const Assumptions& assumptions);

// Walks the schedule. An instruction takes the longest of: its FLOPs at the dtype's rate, its bytes at the memory's
// rate, a launch. Transfers run one after the other: collectives, copies from the host and copies to it each in a queue
// of their own. A transfer that is started runs beside what stands between its
// start and its end; any other is waited for where it stands. Loops run their trip count, of a conditional the longest
// branch.
Timeline estimate(const HloModule& module, const MeshAxes& mesh, const Target& target, int64_t devices_per_host,
                  const Assumptions& assumptions = {});

}  // namespace fettle
