// Defines HloModule: one device's compiled program, as the compiler gives it back.
//
// Names, opcodes and their spelling are XLA's ("all-gather", "fusion"). Only what the plan looks at is kept.
// Source of the fields: XLA's service/hlo.proto and xla_data.proto; ours of them are in hlo.proto.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle {

// An array: "bf16", [128, 16384]. Tokens have 0 bits.
struct HloArray {
  std::string_view dtype;  // XLA's spelling in lower case: "pred", "bf16", "f8e4m3fn"
  int64_t bits = 0;        // of one element
  Dims dims;
  bool host = false;  // in the host's memory

  int64_t elements() const { return product(dims); }
  int64_t bytes() const { return (elements() * bits + 7) / 8; }
  bool operator==(const HloArray&) const = default;
};

// Dims of a dot that are summed over, and those that both sides have.
struct HloDot {
  Dims lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
};

struct HloInstruction {
  std::string name;
  std::string opcode;
  std::string op_name;            // where it comes from: "grad/layers/self_attn.q_proj"; may be empty
  std::vector<HloArray> results;  // one; those of a tuple in order, tuples in tuples flattened
  std::vector<int> operands;      // positions in the computation
  std::vector<int> called;        // positions in HloModule::computations
  int64_t parameter_number = 0;   // of a parameter
  int64_t tuple_index = 0;        // of a get-tuple-element
  std::vector<int64_t> dimensions;
  HloDot dot;
  int64_t convolution_outputs = -1;  // of a convolution: which of the kernel's dims are output features
  int64_t trip_count = -1;           // of a while; -1: the compiler does not know
  std::string fusion_kind;           // "kLoop", "kCustom", ...
  std::string custom_call_target;
  std::string backend_config;
  std::map<std::string, std::string> frontend_attributes;  // as the program's text had them: "fettle_flops"
  // Of a collective: the devices (partition numbers) that exchange with each other, written out whatever form the
  // compiler gave. Empty: all devices in one group. A collective-permute has pairs (source, target) instead.
  std::vector<std::vector<int64_t>> groups;
  std::vector<std::pair<int64_t, int64_t>> pairs;
  std::optional<int64_t> channel;

  double bytes() const;  // of all results
};

struct HloComputation {
  std::string name;
  std::vector<HloInstruction> instructions;  // in the schedule's order when there is one
  int root = 0;

  const HloInstruction& root_instruction() const { return instructions[root]; }
};

struct HloModule {
  std::string name;
  std::vector<HloComputation> computations;
  int entry = 0;
  bool scheduled = false;  // the entry's instructions are in the order in which they are launched
  int64_t devices = 1;     // partitions

  const HloComputation& entry_computation() const { return computations[entry]; }
};

// How often a step runs a computation, loops multiplied (those whose trip count the compiler does not know count once),
// and how many of these runs are started and awaited later.
struct Executions {
  double all = 0, asynchronous = 0;
};
// Of each of the module's computations; those that fusions alone call have none unless `into_fusions`.
std::vector<Executions> executions_of(const HloModule& module, bool into_fusions);

// Reads CompiledProgram::optimized_program() of format "hlo_with_config" (an xla.HloModuleProtoWithConfig).
// Throws DeviceError on bytes that are none, or whose parts refer to what is not there.
HloModule read_hlo(std::string_view bytes);

}  // namespace fettle
