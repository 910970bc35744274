// Defines Timeline: an estimate of a step's time, computed from the compiler's own schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/compiled/hlo.h"
#include "plan/compiled/traffic.h"
#include "runtime/vendors/targets.h"

namespace fettle {

// The assumptions that the estimate makes in addition to the numbers of the data sheet.
struct Assumptions {
  double arithmetic_share = 0.6;  // share of the peak rate that matrix products reach; a kernel may state its own share
  double memory_share = 0.8;      // share of the memory's bandwidth that kernels reach
  double link_share = 0.75;       // share of the bandwidth of links, network and host link
  double kernel_seconds = 3e-6;   // shortest time of a kernel
  double transfer_seconds = 20e-6;  // fixed time of a collective, in addition to the time for its bytes
  // Number of trips of a loop over blocks of the experts' tokens. The router decides the true number; this number
  // assumes that all experts get equally many tokens (balanced_blocks). 0: the model has no experts.
  int64_t expert_blocks = 0;
  bool tf32 = false;  // f32 products use TF32
};

// Returns one sentence per assumption, with its numbers.
std::vector<std::string> describe(const Assumptions& assumptions);

// The time that one part of the model adds to a step.
struct Contributor {
  std::string op_name;  // "grad/layers/self_attn.q_proj"
  std::string work;     // "arithmetic", "memory" (also for launches), or a transfer: "all-gather over fsdp"
  double seconds = 0;
  double exposed_seconds = 0;  // for a transfer, the part that is not hidden; for other work all of it
};

// Seconds and bytes of one device in one step.
struct Timeline {
  double seconds = 0;             // the estimate: arithmetic + memory + exposed
  double arithmetic_seconds = 0;  // time of instructions that are limited by arithmetic
  double memory_seconds = 0;      // time of instructions that are limited by memory or by their launch
  double transfer_seconds = 0;    // time of collectives and of copies from and to the host: hidden + exposed
  double hidden_seconds = 0;      // time of transfers that overlaps with arithmetic and memory work
  double exposed_seconds = 0;     // time that the device waits for transfers
  // Roofline lower bounds: the time of one resource alone, at the data sheet's rate.
  double arithmetic_bound = 0, memory_bound = 0, link_bound = 0, host_bound = 0;
  double network_bound = 0;  // time for only the bytes between hosts; link_bound includes this time
  double flops = 0;          // matrix products and convolutions
  double memory_bytes = 0;
  double link_bytes = 0, network_bytes = 0;
  std::vector<Contributor> largest;  // the parts with the most exposed seconds, at most 12
  // Loops with an unknown trip count, counted as one trip. Loops over experts are not listed.
  std::vector<std::string> unknown_loops;
  Assumptions assumptions;  // the assumptions of this estimate
  // Kernels whose arithmetic or rate is not known. `seconds` counts only the memory traffic of such a kernel, so
  // `seconds` is too low.
  std::vector<std::string> unknown_kernels;
};

// Returns the share of a device's link rate that a group of `members` devices of one host can use. If links connect
// single pairs of devices (Target::link_peers), a group uses only the links between its own devices.
double share_of_links(int link_peers, double members);

// Returns the seconds of a transfer over the target's links and network. Both reach only the assumed share of the data
// sheet's bandwidth. A group uses only its share of the links (share_of_links).
double seconds_of(const Transfer& transfer, const Target& target, const Assumptions& assumptions);

// Simulates the schedule. An instruction takes the longest of three times: its FLOPs at the dtype's rate, its bytes at
// the memory's rate, or its launch. Collectives, copies from the host and copies to the host each have a queue, which
// runs its transfers one after the other. An asynchronous transfer runs in parallel with the instructions between its
// start and its end. For any other transfer, the device waits until the transfer has ended. A loop runs as often as its
// trip count says. Only the longest branch of a conditional runs.
Timeline estimate(const HloModule& module, const MeshAxes& mesh, const Target& target, int64_t devices_per_host,
                  const Assumptions& assumptions = {});

}  // namespace fettle
