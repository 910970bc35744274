// Defines the op table's rows for ops that do not change a value. Such an op sets in which memory the value lies, how
// the value is split, what it waits for, or how its gradient is computed.
#include <array>

#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

void check_partition(const Shape& shape, const Partition& partition) {
  check(partition.dims.empty() || static_cast<int64_t>(partition.dims.size()) == shape.rank(), "sharding_c1",
        "a partition of {} entries does not fit {}", partition.dims.size(), shape.to_string());
}

std::string barrier_text(NodeText& n, Printer&) {
  return fmt::format("{} {} : {}", n.name(), fmt::join(n.operands, ", "), fmt::join(n.types, ", "));
}

std::vector<Shape> barrier_shape(Shapes o, const Attributes&) {
  check(!o.empty(), "identity_c1", "found no operands, wanted one or more");
  return {o.begin(), o.end()};
}

Tensors barrier_vjp(const VjpArgs& a) {
  return a.cotangents;
}

// On one device a constraint has no effect: the result is the operand.
std::string constraint_text(NodeText& n, Printer& printer) {
  if (!printer.sharded()) {
    printer.name_result(n, n.operands[0]);
    return "";
  }
  return fmt::format("sdy.sharding_constraint {} {} : {}", n.operands[0],
                     mlir_sharding(n.node.get<Constraint>().partition, n.node.results[0].rank()), n.result());
}

std::vector<Shape> constraint_shape(Shapes o, const Attributes& a) {
  check_count(o, 1, "identity_c1");
  check_partition(o[0], as<Constraint>(a).partition);
  return {o[0]};
}

Tensors constraint_vjp(const VjpArgs& a) {
  return {sharding_constraint(ct(a), a.get<Constraint>().partition)};
}

// Formats place() (graph/ops.h). Operand 0 is x. Operand 1, if there is one, is `squares`. The text has only x, because
// the value of `squares` is never read.
std::string place_text(NodeText& n, Printer&) {
  return fmt::format(
      "stablehlo.custom_call @annotate_device_placement({}) {{backend_config = \"\", has_side_effect = true, "
      "mhlo.frontend_attributes = {{_xla_buffer_placement = \"{}\"}}}} : {}",
      n.operands[0], memory_kind(n.node.get<Placement>().memory), n.signature());
}

std::vector<Shape> place_shape(Shapes o, const Attributes& a) {
  check(o.size() == 1 || (o.size() == 2 && o[1] == Shape{DType::kF32, {}}), "place_c1",
        "found {} operands, wanted a value, or a value and an f32 scalar", o.size());
  check_partition(o[0], as<Placement>(a).partition);
  return {o[0]};
}

// Copies the gradient to the operand's memory, which is the memory other than `memory`.
Tensors place_vjp(const VjpArgs& a) {
  const auto& [memory, partition] = a.get<Placement>();
  const Tensor grad = sharding_constraint(ct(a), partition);
  Tensors grads{place(grad, memory == Memory::kDevice ? Memory::kHost : Memory::kDevice, partition)};
  if (a.operands.size() > 1) {
    Dims all;
    for (int64_t d = 0; d < grad.rank(); ++d) all.push_back(d);
    const Tensor exact = convert(grad, DType::kF32);
    grads.push_back(reduce_sum(exact * exact, all));
  }
  return grads;
}

Tensors custom_gradient_vjp(const VjpArgs& a) {
  return a.get<std::shared_ptr<const GradientRule>>()->gradient(a);
}

constexpr std::array kStructureRows{
    OpRow{.op = Op::kCustomGradient,
          .name = "custom_gradient",
          .spell = nullptr,
          .shape = same_shape,
          .vjp = custom_gradient_vjp,
          .flops = nullptr,
          .needs = first_operand,
          .saved = Saved::kAsProduct},
    OpRow{.op = Op::kOptimizationBarrier,
          .name = "optimization_barrier",
          .spell = barrier_text,
          .shape = barrier_shape,
          .vjp = barrier_vjp,
          .flops = nullptr,
          .needs = all_operands,
          .saved = Saved::kNever,
          .apart = true},
    // A value that was copied from host memory to the device is not saved for the reverse loop, which copies it again.
    // Such a copy is printed just before its first use, because copies start in the order of the program's text.
    OpRow{.op = Op::kPlace,
          .name = "annotate_device_placement",
          .spell = place_text,
          .shape = place_shape,
          .vjp = place_vjp,
          .flops = nullptr,
          .needs = first_operand,
          .saved = Saved::kNever,
          .late = [](const Node& node, bool) { return node.get<Placement>().memory == Memory::kDevice; }},
    OpRow{.op = Op::kShardingConstraint,
          .name = "sharding_constraint",
          .spell = constraint_text,
          .shape = constraint_shape,
          .vjp = constraint_vjp,
          .flops = nullptr,
          .needs = all_operands,
          .saved = Saved::kNever,
          .view = true,
          .late = [](const Node&, bool operand_late) { return operand_late; }},
    OpRow{.op = Op::kStopGradient,
          .name = "stop_gradient",
          .spell = nullptr,
          .shape = same_shape,
          .vjp = nullptr,
          .flops = nullptr,
          .needs = first_operand,
          .saved = Saved::kNever},
};

}  // namespace

std::span<const OpRow> structure() {
  return kStructureRows;
}

}  // namespace fettle::rows
