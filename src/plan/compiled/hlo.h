// Defines HloModule: one device's compiled program, read from the compiler's output.
//
// Names and opcodes are spelled as in XLA ("all-gather", "fusion"). The module keeps only what the plan uses. Source of
// the fields: XLA's service/hlo.proto and xla_data.proto; hlo.proto lists the fields that Fettle reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle {

// An array such as "bf16", [128, 16384]. XLA's tokens, which only order instructions, have 0 bits.
struct HloArray {
  std::string_view dtype;  // XLA's spelling in lower case: "pred", "bf16", "f8e4m3fn"
  int64_t bits = 0;        // bits of one element
  Dims dims;
  bool host = false;  // in host memory

  int64_t elements() const { return product(dims); }
  int64_t bytes() const { return (elements() * bits + 7) / 8; }
  bool operator==(const HloArray&) const = default;
};

// The dims of a dot that are summed over, and the batch dims of both sides.
struct HloDot {
  Dims lhs_contracting, rhs_contracting, lhs_batch, rhs_batch;
};

struct HloInstruction {
  std::string name;
  std::string opcode;
  std::string op_name;            // the part of the model: "grad/layers/self_attn.q_proj"; may be empty
  std::vector<HloArray> results;  // one result, or the elements of a tuple in order; nested tuples are flattened
  std::vector<int> operands;      // indices of HloComputation::instructions
  std::vector<int> called;        // indices of HloModule::computations
  int64_t parameter_number = 0;   // for a parameter
  int64_t tuple_index = 0;        // for a get-tuple-element
  std::vector<int64_t> dimensions;
  HloDot dot;
  int64_t convolution_outputs = -1;  // for a convolution: the kernel's dim of output features
  int64_t trip_count = -1;           // of a `while` instruction; -1: the compiler does not know it
  std::string fusion_kind;           // "kLoop", "kCustom", ...
  std::string custom_call_target;
  std::string backend_config;
  std::map<std::string, std::string> frontend_attributes;  // from the program's text, such as "fettle_flops"
  // For a collective: the groups of devices (partition numbers) that exchange data, as plain lists. Empty: all devices
  // form one group. A collective-permute has `pairs` (source, target) instead.
  std::vector<std::vector<int64_t>> groups;
  std::vector<std::pair<int64_t, int64_t>> pairs;

  double bytes() const;  // bytes of all results
};

struct HloComputation {
  std::string name;
  std::vector<HloInstruction> instructions;  // in the order of the schedule, when the program has one
  int root = 0;

  const HloInstruction& root_instruction() const { return instructions[root]; }
};

struct HloModule {
  std::string name;
  std::vector<HloComputation> computations;
  int entry = 0;
  bool scheduled = false;  // the instructions of the entry computation are in launch order
  int64_t devices = 1;     // number of partitions
};

// How often a step executes a computation, and how many of these executions are asynchronous (started and awaited
// later). The numbers are multiplied by the trip counts of the surrounding loops; an unknown trip count counts as 1.
struct Executions {
  double all = 0, asynchronous = 0;
};
// Returns the executions of each of the module's computations. Computations that only fusions call have no executions,
// unless `into_fusions` is true.
std::vector<Executions> executions_of(const HloModule& module, bool into_fusions);

// Reads CompiledProgram::optimized_program() of format "hlo_with_config" (an xla.HloModuleProtoWithConfig). Throws
// DeviceError when the bytes are malformed, or when a part refers to a part that does not exist.
HloModule read_hlo(std::string_view bytes);

}  // namespace fettle
