#include "plan/compiled/hlo.h"

#include <hlo.pb.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "plan/compiled/device_groups.h"

namespace fettle {
namespace {

struct ElementType {
  std::string_view name;
  int64_t bits;
};

constexpr int kTuple = 13;
// Element types, indexed by the number of XLA's PrimitiveType.
constexpr std::array<ElementType, 35> kElementTypes{{
    {"invalid", 0},    {"pred", 8},       {"s8", 8},       {"s16", 16},      {"s32", 32},   {"s64", 64},
    {"u8", 8},         {"u16", 16},       {"u32", 32},     {"u64", 64},      {"f16", 16},   {"f32", 32},
    {"f64", 64},       {"tuple", 0},      {"opaque", 0},   {"c64", 64},      {"bf16", 16},  {"token", 0},
    {"c128", 128},     {"f8e5m2", 8},     {"f8e4m3fn", 8}, {"s4", 4},        {"u4", 4},     {"f8e4m3b11fnuz", 8},
    {"f8e5m2fnuz", 8}, {"f8e4m3fnuz", 8}, {"s2", 2},       {"u2", 2},        {"f8e4m3", 8}, {"f8e3m4", 8},
    {"s1", 1},         {"u1", 1},         {"f4e2m1fn", 4}, {"f8e8m0fnu", 8}, {"buffer", 0},
}};

void add_arrays(const hlo::Shape& shape, const std::string& instruction, std::vector<HloArray>& out) {
  if (shape.element_type() == kTuple) {
    for (const hlo::Shape& part : shape.tuple_shapes()) add_arrays(part, instruction, out);
    return;
  }
  const int type = shape.element_type();
  HloArray array{type >= 0 && type < static_cast<int>(kElementTypes.size()) ? kElementTypes[type].name : "unknown",
                 type >= 0 && type < static_cast<int>(kElementTypes.size()) ? kElementTypes[type].bits : 0,
                 {shape.dimensions().begin(), shape.dimensions().end()}};
  if (const int64_t bits = shape.layout().element_size_in_bits(); bits > 0 && bits < array.bits) array.bits = bits;
  constexpr int64_t kHostSpace = 5;  // XLA's Layout::kHostMemorySpace
  array.host = shape.layout().memory_space() == kHostSpace;
  int64_t size = 128;  // starts at 128 so that the size in bits of every accepted array fits in 63 bits
  for (int64_t dim : array.dims) {
    if (dim < 0 || __builtin_mul_overflow(size, dim, &size))
      throw DeviceError("the compiled program's {} has invalid dims {}: one is negative, or the array is too large",
                        instruction, to_string(array.dims));
  }
  out.push_back(std::move(array));
}

Dims dims_of(const google::protobuf::RepeatedField<int64_t>& values) {
  return Dims(values.begin(), values.end());
}

const std::string& backend_config(const hlo::Module& module, const hlo::Instruction& from) {
  const hlo::Payload& payload = from.backend_config_payload();
  if (payload.source_case() == hlo::Payload::kValue) return payload.value();
  if (payload.source_case() != hlo::Payload::kId) return from.backend_config();
  if (payload.id() < 0 || payload.id() >= module.payloads_size())
    throw DeviceError("the compiled program's {} refers to payload {}, but there are {} payloads", from.name(),
                      payload.id(), module.payloads_size());
  return module.payloads(static_cast<int>(payload.id()));
}

// Returns the trip count in the configuration of a `while` instruction; -1 when the configuration has none.
int64_t known_trip_count(const std::string& config) {
  const nlohmann::json json = nlohmann::json::parse(config, nullptr, false);
  if (!json.is_object()) return -1;
  const nlohmann::json::json_pointer place("/known_trip_count/n");
  if (!json.contains(place)) return -1;
  const nlohmann::json& count = json[place];
  if (count.is_number_integer()) return count.get<int64_t>();
  if (!count.is_string()) return -1;
  return digits_value(count.get<std::string>()).value_or(-1);
}

using Places = std::map<int64_t, int>;  // id -> position

int place(const Places& places, int64_t id, const std::string& of, const char* what) {
  const auto at = places.find(id);
  if (at == places.end())
    throw DeviceError("the compiled program's {} refers to {} {}, which does not exist", of, what, id);
  return at->second;
}

HloInstruction read_instruction(const hlo::Module& module, const hlo::Instruction& from, const Places& instructions,
                                const Places& computations) {
  HloInstruction to;
  to.name = from.name();
  to.opcode = from.opcode();
  to.op_name = from.metadata().op_name();
  add_arrays(from.shape(), from.name(), to.results);
  for (int64_t id : from.operand_ids()) to.operands.push_back(place(instructions, id, from.name(), "instruction"));
  for (int64_t id : from.called_computation_ids())
    to.called.push_back(place(computations, id, from.name(), "computation"));
  to.parameter_number = from.parameter_number();
  to.tuple_index = from.tuple_index();
  to.dimensions = dims_of(from.dimensions());
  to.dot = {dims_of(from.dot().lhs_contracting()), dims_of(from.dot().rhs_contracting()),
            dims_of(from.dot().lhs_batch()), dims_of(from.dot().rhs_batch())};
  if (from.has_convolution()) to.convolution_outputs = from.convolution().kernel_output_feature();
  to.fusion_kind = from.fusion_kind();
  to.custom_call_target = from.custom_call_target();
  to.backend_config = backend_config(module, from);
  for (const auto& [key, value] : from.frontend_attributes().map()) to.frontend_attributes[key] = value;
  if (from.opcode() == "while") to.trip_count = known_trip_count(to.backend_config);
  to.groups = device_groups(from);
  for (const auto& pair : from.source_target_pairs()) to.pairs.emplace_back(pair.source(), pair.target());
  return to;
}

// Returns the positions of the computation's instructions in the order of the schedule; without a schedule, in the
// order of the file.
std::vector<int> order_of(const hlo::Module& module, const hlo::Computation& from, const Places& places) {
  std::vector<int> order;
  const auto sequence = module.schedule().sequences().find(from.id());
  if (sequence == module.schedule().sequences().end()) {
    for (int i = 0; i < from.instructions_size(); ++i) order.push_back(i);
    return order;
  }
  std::vector<bool> seen(from.instructions_size(), false);
  for (int64_t id : sequence->second.instruction_ids()) {
    order.push_back(place(places, id, from.name(), "instruction"));
    seen[order.back()] = true;
  }
  if (order.size() != seen.size() || std::find(seen.begin(), seen.end(), false) != seen.end())
    throw DeviceError("the compiled program's schedule of {} names {} of {} instructions", from.name(), order.size(),
                      seen.size());
  return order;
}

HloComputation read_computation(const hlo::Module& module, const hlo::Computation& from, const Places& computations) {
  if (from.instructions().empty()) throw DeviceError("the compiled program's computation {} is empty", from.name());
  Places unordered, ordered;
  for (int i = 0; i < from.instructions_size(); ++i) unordered[from.instructions(i).id()] = i;
  const std::vector<int> order = order_of(module, from, unordered);
  for (int i = 0; i < from.instructions_size(); ++i) ordered[from.instructions(order[i]).id()] = i;
  HloComputation to{from.name(), {}, place(ordered, from.root_id(), from.name(), "root")};
  for (int i : order) to.instructions.push_back(read_instruction(module, from.instructions(i), ordered, computations));
  return to;
}

// Throws DeviceError unless each computation calls only earlier computations and each instruction uses only earlier
// instructions. So code that follows these references always terminates.
void check_order(const HloModule& module) {
  for (size_t c = 0; c < module.computations.size(); ++c) {
    const std::vector<HloInstruction>& instructions = module.computations[c].instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const HloInstruction& instruction = instructions[i];
      for (int operand : instruction.operands) {
        if (operand >= static_cast<int>(i))
          throw DeviceError("the compiled program's {} uses {}, which comes after it", instruction.name,
                            instructions[operand].name);
      }
      for (int called : instruction.called) {
        if (called >= static_cast<int>(c))
          throw DeviceError("the compiled program's {} calls {}, which comes after it", instruction.name,
                            module.computations[called].name);
      }
    }
  }
}

}  // namespace

double HloInstruction::bytes() const {
  double sum = 0;
  for (const HloArray& array : results) sum += static_cast<double>(array.bytes());
  return sum;
}

HloModule read_hlo(std::string_view bytes) try {
  hlo::ModuleWithConfig message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || message.module().computations().empty())
    throw DeviceError("the compiled program ({} bytes) is not an HLO module", bytes.size());
  const hlo::Module& from = message.module();
  HloModule to;
  to.name = from.name();
  to.devices = std::max<int64_t>(1, message.config().num_partitions());
  Places computations;
  for (int i = 0; i < from.computations_size(); ++i) computations[from.computations(i).id()] = i;
  for (const hlo::Computation& computation : from.computations())
    to.computations.push_back(read_computation(from, computation, computations));
  to.entry = place(computations, from.entry_computation_id(), from.name(), "entry computation");
  to.scheduled = from.schedule().sequences().contains(from.entry_computation_id());
  check_order(to);
  return to;
} catch (const DeviceError& error) {
  throw DeviceError("{}; the plugin may be too new for this Fettle", error.what());
}

std::vector<Executions> executions_of(const HloModule& module, bool into_fusions) {
  std::vector<Executions> out(module.computations.size());
  out[module.entry].all = 1;
  // Computations come before the computations that call them, so this loop goes backwards.
  for (int c = static_cast<int>(module.computations.size()) - 1; c >= 0; --c) {
    if (out[c].all == 0) continue;
    for (const HloInstruction& instruction : module.computations[c].instructions) {
      if (instruction.opcode == "fusion" && !into_fusions) continue;
      const bool counted = instruction.opcode == "while" && instruction.trip_count >= 0;
      const double times = counted ? static_cast<double>(instruction.trip_count) : 1;
      for (int called : instruction.called) {
        out[called].all += out[c].all * times;
        out[called].asynchronous += (instruction.opcode == "async-start" ? out[c].all : out[c].asynchronous) * times;
      }
    }
  }
  return out;
}

}  // namespace fettle
