// Defines Timeline: how long a step may take, reckoned from the compiler's own schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "plan/hlo.h"
#include "runtime/targets.h"

namespace fettle {

// What the estimate takes for granted beside the data sheet's figures.
struct Assumptions {
  double matmul_share = 0.6;        // of the peak rate that matrix products reach
  double memory_share = 0.8;        // of the memory's bandwidth
  double link_share = 0.75;         // of the links' and the network's bandwidth
  double transfer_seconds = 20e-6;  // a collective takes at least
  double kernel_seconds = 3e-6;     // a kernel takes at least
};
// One line each, as "matrix products reach 60 % of the data sheet's rate".
std::vector<std::string> describe(const Assumptions& assumptions);

// Some work with one origin in the model.
struct Contributor {
  std::string op_name;                                                      // "grad/layers/self_attn.q_proj"
  double arithmetic_seconds = 0, memory_seconds = 0, transfer_seconds = 0;  // a step, by what limits each instruction
  double seconds() const { return arithmetic_seconds + memory_seconds + transfer_seconds; }
};

// Seconds are of one device and one step.
struct Timeline {
  double seconds = 0;                        // the estimate
  double arithmetic_seconds = 0;             // of instructions that arithmetic limits
  double memory_seconds = 0;                 // of instructions that memory (or a kernel's launch) limits
  double transfer_seconds = 0;               // of collectives; hidden + exposed
  double hidden_seconds = 0;                 // transfers behind arithmetic or memory
  double exposed_seconds = 0;                // seconds = arithmetic + memory + exposed
  double flops = 0;                          // one device's matrix products and convolutions
  double memory_bytes = 0;                   // one device reads and writes
  double link_bytes = 0, network_bytes = 0;  // one device sends
  // Below this the hardware cannot go, whatever the schedule: data sheet's rates, each resource alone.
  double arithmetic_bound = 0, memory_bound = 0, link_bound = 0;
  std::vector<Contributor> largest;        // by seconds, at most 12
  std::vector<std::string> unknown_loops;  // whose trip count the compiler does not know: counted once
};

// Walks the schedule. An instruction takes the longest of its matrix products' FLOPs at the dtype's rate, its bytes at
// the memory's rate, and a launch. A collective that is started and awaited runs beside what lies between, after those
// started before it; others block. Loops run their trip count; of a conditional the longer branch.
Timeline estimate(const HloModule& module, const MeshAxes& mesh, const Target& target, int64_t devices_per_host,
                  const Assumptions& assumptions = {});

}  // namespace fettle
