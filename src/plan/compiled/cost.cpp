#include "plan/compiled/cost.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/text.h"
#include "graph/slices_in_place.h"

namespace fettle {
namespace {

using Words = std::set<std::string_view>;

// Opcodes that cost nothing by themselves.
const Words kFree = {"parameter", "constant",    "tuple",       "get-tuple-element", "bitcast",    "after-all",
                     "while",     "call",        "conditional", "partition-id",      "replica-id", "add-dependency",
                     "domain",    "opt-barrier", "async-start", "async-update",      "async-done", "copy-done"};
const Words kRenames = {"bitcast", "reshape", "copy"};  // free within a fusion
const Words kSlices = {"dynamic-slice", "slice", "gather"};

const HloInstruction& operand(const HloComputation& computation, const HloInstruction& instruction, size_t i) {
  return computation.instructions[instruction.operands[i]];
}

// `position` is an instruction of a fused computation. Returns how many bytes of its result the later instructions
// read.
double read_bytes(const HloModule& module, const HloComputation& computation, int position) {
  const double whole = computation.instructions[position].bytes();
  double bytes = 0;
  for (int u = 0; u < static_cast<int>(computation.instructions.size()); ++u) {
    const HloInstruction& user = computation.instructions[u];
    for (size_t i = 0; i < user.operands.size(); ++i) {
      if (user.operands[i] != position) continue;
      if (i == 0 && kSlices.contains(user.opcode)) {
        bytes += user.bytes();
      } else if (i == 0 && user.opcode == "dynamic-update-slice") {
        continue;  // the update is in place and does not read the operand
      } else if (kRenames.contains(user.opcode)) {
        bytes += read_bytes(module, computation, u);
      } else if (user.opcode == "fusion" && !user.called.empty()) {
        const HloComputation& inner = module.computations[user.called[0]];
        for (int p = 0; p < static_cast<int>(inner.instructions.size()); ++p) {
          if (inner.instructions[p].opcode == "parameter" &&
              inner.instructions[p].parameter_number == static_cast<int64_t>(i))
            bytes += read_bytes(module, inner, p);
        }
      } else {
        return whole;
      }
    }
  }
  return std::min(bytes, whole);
}

// `instruction` is the root of a fused computation, or a part of the root. Returns the bytes that the computation
// writes for it.
double written_bytes(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction) {
  if (instruction.opcode == "tuple") {
    double bytes = 0;
    for (size_t i = 0; i < instruction.operands.size(); ++i)
      bytes += written_bytes(module, computation, operand(computation, instruction, i));
    return bytes;
  }
  if (instruction.opcode == "fusion" && !instruction.called.empty()) {
    const HloComputation& inner = module.computations[instruction.called[0]];
    return written_bytes(module, inner, inner.root_instruction());
  }
  const HloInstruction* from = &instruction;
  while (kRenames.contains(from->opcode) && !from->operands.empty()) from = &operand(computation, *from, 0);
  if (from->opcode == "dynamic-update-slice" && from->operands.size() > 1)
    return operand(computation, *from, 1).bytes();
  return instruction.bytes();
}

// Returns the FLOPs of a dot with this result. `contracting` has the dims of the left operand `lhs` that are summed
// over.
double dot_flops(const HloArray& result, const HloArray& lhs, const Dims& contracting) {
  double flops = 2.0 * static_cast<double>(result.elements());
  for (int64_t dim : contracting) {
    if (dim >= 0 && dim < static_cast<int64_t>(lhs.dims.size())) flops *= static_cast<double>(lhs.dims[dim]);
  }
  return flops;
}

// Adds the FLOPs of a product. `widest` is the factor whose dtype has more bits.
void add_flops(Cost& cost, double flops, const HloArray& widest) {
  const bool float8 = widest.bits == 8 && widest.dtype.starts_with('f');
  (widest.bits > 16 ? cost.flops_f32 : float8 ? cost.flops_f8 : cost.flops_bf16) += flops;
}

// Reads an integer from the compiler's JSON, in which integers may be strings. Returns -1 when the value is malformed.
int64_t number(const nlohmann::json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return -1;
  return digits_value(value.get<std::string>()).value_or(-1);
}

Dims numbers(const nlohmann::json& config, const char* place) {
  Dims out;
  const nlohmann::json::json_pointer pointer(place);
  if (config.is_object() && config.contains(pointer) && config[pointer].is_array()) {
    for (const nlohmann::json& value : config[pointer]) out.push_back(number(value));
  }
  return out;
}

// Returns the number that a Fettle kernel's call states in its attribute `what`, such as "fettle_flops". The number is
// for one call on one device (graph/rows/call.cpp). Returns -1 when the call has no such attribute.
int64_t stated(const HloInstruction& call, const char* what) {
  const auto at = call.frontend_attributes.find(what);
  return at == call.frontend_attributes.end() ? -1 : number(at->second);
}

// Adds the FLOPs that the attribute "fettle_flops" of a Fettle kernel's call states. Returns false when the call has no
// such attribute.
bool add_stated_flops(const HloComputation& computation, const HloInstruction& call, Cost& cost) {
  const int64_t flops = stated(call, "fettle_flops");
  if (flops < 0 || call.operands.empty()) return false;
  const HloInstruction& first = operand(computation, call, 0);
  if (first.results.empty()) return false;
  add_flops(cost, static_cast<double>(flops), first.results[0]);
  cost.share = static_cast<double>(std::max<int64_t>(0, stated(call, "fettle_percent"))) / 100;
  return true;
}

// Adds the FLOPs of products in cuBLAS, in hipBLASLt and in XLA's Triton kernels, and of attention in cuDNN. AMD's
// products have the same target names as NVIDIA's. Returns false when the call is not one of these, or its
// configuration is incomplete.
bool add_library_flops(const HloComputation& computation, const HloInstruction& call, Cost& cost) {
  const std::string& target = call.custom_call_target;
  if (call.operands.empty() || call.results.empty()) return false;
  const HloInstruction& first = operand(computation, call, 0);
  if (first.results.empty()) return false;
  const HloArray& lhs = first.results[0];
  const nlohmann::json config = nlohmann::json::parse(call.backend_config, nullptr, false);
  if (target.starts_with("__cublas$") || target.starts_with("__triton_gemm")) {
    const Dims contracting = numbers(config, "/gemm_backend_config/dot_dimension_numbers/lhs_contracting_dimensions");
    if (contracting.empty()) return false;
    add_flops(cost, dot_flops(call.results[0], lhs, contracting), lhs);
    return true;
  }
  if (target.starts_with("__cudnn$fmha")) {
    const Dims scores = numbers(config, "/cudnn_fmha_backend_config/intermediate_tensor_shape/dimensions");
    if (scores.size() != 4 || lhs.dims.empty()) return false;
    // The forward pass has two products over the scores. The backward pass computes the scores again and has four more.
    const double products = target.ends_with("Backward") ? 5 : 2;
    add_flops(cost, products * 2.0 * static_cast<double>(product(scores)) * static_cast<double>(lhs.dims.back()), lhs);
    return true;
  }
  return false;
}

// Adds the FLOPs of the instruction. For a fusion, adds the FLOPs of the fused instructions.
void add_arithmetic(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction,
                    Cost& cost) {
  if (instruction.opcode == "fusion") {
    for (int called : instruction.called) {
      const HloComputation& inner = module.computations[called];
      for (const HloInstruction& part : inner.instructions) add_arithmetic(module, inner, part, cost);
    }
  } else if (instruction.opcode == "dot" || instruction.opcode == "convolution") {
    if (instruction.operands.size() < 2 || instruction.results.empty()) return;
    const HloInstruction& left = operand(computation, instruction, 0);
    const HloInstruction& right = operand(computation, instruction, 1);
    if (left.results.empty() || right.results.empty()) return;
    const HloArray &a = left.results[0], &b = right.results[0], &widest = a.bits < b.bits ? b : a;
    if (instruction.opcode == "dot") {
      add_flops(cost, dot_flops(instruction.results[0], left.results[0], instruction.dot.lhs_contracting), widest);
    } else {
      const HloArray& kernel = right.results[0];
      const int64_t outputs = instruction.convolution_outputs;
      double each = static_cast<double>(kernel.elements());
      if (outputs >= 0 && outputs < static_cast<int64_t>(kernel.dims.size()) && kernel.dims[outputs] > 0)
        each /= static_cast<double>(kernel.dims[outputs]);
      add_flops(cost, 2.0 * static_cast<double>(instruction.results[0].elements()) * each, widest);
    }
  } else if (instruction.opcode == "custom-call") {
    if (!add_stated_flops(computation, instruction, cost) && !add_library_flops(computation, instruction, cost))
      cost.counted = false;
  }
}

double memory_bytes(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction) {
  if (const int64_t bytes = stated(instruction, "fettle_bytes"); bytes >= 0) return static_cast<double>(bytes);
  const double result = instruction.bytes();
  if (kSlices.contains(instruction.opcode)) return 2 * result;
  if (instruction.opcode == "dynamic-update-slice" && instruction.operands.size() > 1)
    return 2 * operand(computation, instruction, 1).bytes();
  double bytes = 0;
  if (instruction.opcode == "fusion" && !instruction.called.empty()) {
    const HloComputation& inner = module.computations[instruction.called[0]];
    for (int p = 0; p < static_cast<int>(inner.instructions.size()); ++p) {
      if (inner.instructions[p].opcode == "parameter") bytes += read_bytes(module, inner, p);
    }
    return bytes + std::min(result, written_bytes(module, inner, inner.root_instruction()));
  }
  for (size_t i = 0; i < instruction.operands.size(); ++i) bytes += operand(computation, instruction, i).bytes();
  return bytes + result;
}

}  // namespace

double bytes_read(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction,
                  size_t i) {
  if (i == 0 && kSlices.contains(instruction.opcode)) return instruction.bytes();
  if (i == 0 && instruction.opcode == "dynamic-update-slice") return 0;
  const double whole = operand(computation, instruction, i).bytes();
  if (instruction.opcode != "fusion" || instruction.called.empty()) return whole;
  const HloComputation& inner = module.computations[instruction.called[0]];
  double bytes = 0;
  for (int p = 0; p < static_cast<int>(inner.instructions.size()); ++p)
    if (inner.instructions[p].opcode == "parameter" &&
        inner.instructions[p].parameter_number == static_cast<int64_t>(i))
      bytes += read_bytes(module, inner, p);
  return bytes;
}

double bytes_written(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction) {
  return std::min(instruction.bytes(), written_bytes(module, computation, instruction));
}

Cost cost_of(const HloModule& module, const HloComputation& computation, const HloInstruction& instruction) {
  Cost cost;
  const std::string& target = instruction.custom_call_target;
  if (kFree.contains(instruction.opcode) || target == "AllocateBuffer" || target == kUnwrittenTarget) return cost;
  add_arithmetic(module, computation, instruction, cost);
  cost.memory_bytes = memory_bytes(module, computation, instruction);
  return cost;
}

}  // namespace fettle
