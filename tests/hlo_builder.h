// Defines HloBuilder, which builds compiled programs by hand, in the form in which a plugin returns them.
#pragma once

#include <hlo.pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/arrays/shape.h"
#include "plan/compiled/hlo.h"

namespace fettle {

struct HloBuilder {
  // XLA's numbers of the element types that tests use.
  enum Type { kS32 = 4, kF32 = 11, kBF16 = 16 };
  struct Array {
    Type type;
    Dims dims;
  };

  explicit HloBuilder(int64_t devices = 8) {
    message.mutable_module()->set_name("by_hand");
    message.mutable_config()->set_num_partitions(devices);
  }

  // Starts the computation to which the next instructions are added. The last computation is the entry, so add called
  // computations before their callers.
  int64_t computation(const std::string& name) {
    current = message.mutable_module()->add_computations();
    current->set_name(name);
    current->set_id(++ids);
    message.mutable_module()->set_entry_computation_id(current->id());
    return current->id();
  }

  static void fill(hlo::Shape& shape, const Array& array) {
    shape.set_element_type(array.type);
    for (int64_t dim : array.dims) shape.add_dimensions(dim);
  }

  // Adds an instruction to the current computation. It becomes the root of this computation.
  hlo::Instruction& add(const std::string& opcode, const std::vector<Array>& results,
                        const std::vector<int64_t>& operands = {}) {
    hlo::Instruction& instruction = *current->add_instructions();
    instruction.set_id(++ids);
    instruction.set_opcode(opcode);
    instruction.set_name(opcode + "." + std::to_string(ids));
    instruction.mutable_metadata()->set_op_name(opcode);
    if (results.size() == 1) {
      fill(*instruction.mutable_shape(), results[0]);
    } else {
      instruction.mutable_shape()->set_element_type(13);  // a tuple
      for (const Array& array : results) fill(*instruction.mutable_shape()->add_tuple_shapes(), array);
    }
    for (int64_t operand : operands) instruction.add_operand_ids(operand);
    current->set_root_id(instruction.id());
    return instruction;
  }

  int64_t parameter(int64_t number, const Array& array) {
    hlo::Instruction& made = add("parameter", {array});
    made.set_parameter_number(number);
    return made.id();
  }

  // Adds parameters 0 and 1 and their matrix product [m, k] x [k, n], in bf16 by default.
  hlo::Instruction& dot(int64_t m, int64_t k, int64_t n, Type type = kBF16) {
    const int64_t left = parameter(0, {type, {m, k}}), right = parameter(1, {type, {k, n}});
    hlo::Instruction& made = add("dot", {{type, {m, n}}}, {left, right});
    made.mutable_dot()->add_lhs_contracting(1);
    made.mutable_dot()->add_rhs_contracting(0);
    return made;
  }

  // Adds a collective that reads the result of instruction `operand`. `groups` has the device numbers of each group.
  hlo::Instruction& collective(const std::string& opcode, const Array& result, int64_t operand,
                               const std::vector<std::vector<int64_t>>& groups) {
    hlo::Instruction& made = add(opcode, {result}, {operand});
    made.set_use_global_device_ids(true);
    for (const auto& group : groups) {
      hlo::ReplicaGroup& to = *made.mutable_device_list()->add_replica_groups();
      for (int64_t device : group) to.add_replica_ids(device);
    }
    return made;
  }

  // Adds a loop that runs `body` `times` times. If `times` is negative, the number is unknown.
  hlo::Instruction& loop(int64_t body, int64_t times) {
    hlo::Instruction& made = add("while", {{kS32, {}}});
    made.add_called_computation_ids(body);
    if (times >= 0) made.set_backend_config(R"({"known_trip_count":{"n":")" + std::to_string(times) + R"("}})");
    return made;
  }

  std::string bytes() const { return message.SerializeAsString(); }
  HloModule module() const { return read_hlo(bytes()); }

  hlo::ModuleWithConfig message;
  hlo::Computation* current = nullptr;
  int64_t ids = 0;
};

}  // namespace fettle
