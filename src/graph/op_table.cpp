#include "graph/op_table.h"

#include <array>

#include "base/error.h"
#include "graph/autodiff/vjps.h"
#include "graph/custom_call.h"
#include "graph/shape_rules.h"

namespace fettle {
namespace {

namespace rule = shape_rules;

std::vector<Shape> converted(std::span<const Shape> operands, const Attributes& attributes) {
  internal_check(operands.size() == 1, "[convert_c1] {} operands", operands.size());
  return {operands[0].with_dtype(dtype_from_hf(attributes.text))};
}

// Operands: the product as it was taken, and what it is the product of.
std::vector<Shape> float8_dot(std::span<const Shape> operands, const Attributes& attributes) {
  internal_check(operands.size() == 3, "[float8_dot_c1] {} operands", operands.size());
  const std::vector<Shape> out = rule::dot_general(operands.subspan(1), {.dot = attributes.dot});
  internal_check(out[0] == operands[0], "[float8_dot_c2] {} for {}", operands[0].to_string(), out[0].to_string());
  return out;
}

std::vector<Shape> bitcast(std::span<const Shape> operands, const Attributes& attributes) {
  const std::vector<Shape> out = converted(operands, attributes);
  internal_check(byte_size(out[0].dtype) == byte_size(operands[0].dtype), "[bitcast_convert_c1] {} as {}",
                 operands[0].to_string(), out[0].to_string());
  return out;
}

int64_t dot_flops(const Node& node) {
  int64_t contracted = 1;
  const Dims& lhs = node.operands[0].dims();
  for (int64_t d : node.attributes.dot.lhs_contracting) contracted *= lhs[d];
  return 2 * node.results[0].elements() * contracted;
}

int64_t call_flops(const Node& node) {
  return node.attributes.call->cost.flops;
}

int64_t scan_flops(const Node& node) {
  return node.attributes.trips * count_flops(*node.attributes.body);
}

constexpr std::array kTable{
    OpRow{Op::kParameter, "parameter", nullptr, nullptr, nullptr},
    OpRow{Op::kConstant, "constant", nullptr, nullptr, nullptr},
    OpRow{Op::kIota, "iota", nullptr, nullptr, nullptr},
    OpRow{Op::kAbs, "abs", rule::same_number, vjps::abs, nullptr},
    OpRow{Op::kCosine, "cosine", rule::same_float, vjps::cosine, nullptr},
    OpRow{Op::kErf, "erf", rule::same_float, vjps::erf, nullptr},
    OpRow{Op::kExponential, "exponential", rule::same_float, vjps::exponential, nullptr},
    OpRow{Op::kFloor, "floor", rule::same_float, nullptr, nullptr},
    OpRow{Op::kIsFinite, "is_finite", rule::is_finite, nullptr, nullptr},
    OpRow{Op::kLog, "log", rule::same_float, vjps::log, nullptr},
    OpRow{Op::kLogistic, "logistic", rule::same_float, vjps::logistic, nullptr},
    OpRow{Op::kNegate, "negate", rule::same_number, vjps::negate, nullptr},
    OpRow{Op::kNot, "not", rule::logical_not, nullptr, nullptr},
    OpRow{Op::kRsqrt, "rsqrt", rule::same_float, vjps::rsqrt, nullptr},
    OpRow{Op::kSign, "sign", rule::same_number, nullptr, nullptr},
    OpRow{Op::kSine, "sine", rule::same_float, vjps::sine, nullptr},
    OpRow{Op::kSqrt, "sqrt", rule::same_float, vjps::sqrt, nullptr},
    OpRow{Op::kTanh, "tanh", rule::same_float, vjps::tanh, nullptr},
    OpRow{Op::kAdd, "add", rule::binary_number, vjps::add, nullptr},
    OpRow{Op::kAnd, "and", rule::binary_bits, nullptr, nullptr},
    OpRow{Op::kDivide, "divide", rule::binary_number, vjps::divide, nullptr},
    OpRow{Op::kMaximum, "maximum", rule::binary_number, vjps::maximum, nullptr},
    OpRow{Op::kMinimum, "minimum", rule::binary_number, vjps::minimum, nullptr},
    OpRow{Op::kMultiply, "multiply", rule::binary_number, vjps::multiply, nullptr},
    OpRow{Op::kOr, "or", rule::binary_bits, nullptr, nullptr},
    OpRow{Op::kPower, "power", rule::binary_number, vjps::power, nullptr},
    OpRow{Op::kRemainder, "remainder", rule::binary_number, nullptr, nullptr},
    OpRow{Op::kShiftLeft, "shift_left", rule::binary_bits, nullptr, nullptr},
    OpRow{Op::kShiftRightLogical, "shift_right_logical", rule::binary_bits, nullptr, nullptr},
    OpRow{Op::kSubtract, "subtract", rule::binary_number, vjps::subtract, nullptr},
    OpRow{Op::kXor, "xor", rule::binary_bits, nullptr, nullptr},
    OpRow{Op::kCompare, "compare", rule::compare, nullptr, nullptr},
    OpRow{Op::kSelect, "select", rule::select, vjps::select, nullptr},
    OpRow{Op::kConvert, "convert", converted, vjps::convert, nullptr},
    OpRow{Op::kBitcastConvert, "bitcast_convert", bitcast, nullptr, nullptr},
    OpRow{Op::kBroadcastInDim, "broadcast_in_dim", rule::broadcast_in_dim, vjps::broadcast_in_dim, nullptr},
    OpRow{Op::kConcatenate, "concatenate", rule::concatenate, vjps::concatenate, nullptr},
    OpRow{Op::kDynamicSlice, "dynamic_slice", rule::dynamic_slice, vjps::dynamic_slice, nullptr},
    OpRow{Op::kDynamicUpdateSlice, "dynamic_update_slice", rule::dynamic_update_slice, vjps::dynamic_update_slice,
          nullptr},
    OpRow{Op::kPad, "pad", rule::pad, vjps::pad, nullptr},
    OpRow{Op::kReshape, "reshape", rule::reshape, vjps::reshape, nullptr},
    OpRow{Op::kSlice, "slice", rule::slice, vjps::slice, nullptr},
    OpRow{Op::kTranspose, "transpose", rule::transpose, vjps::transpose, nullptr},
    OpRow{Op::kDotGeneral, "dot_general", rule::dot_general, vjps::dot_general, dot_flops},
    OpRow{Op::kReduce, "reduce", rule::reduce, vjps::reduce, nullptr},
    OpRow{Op::kTake, "gather", rule::take, vjps::take, nullptr},
    OpRow{Op::kTakeTranspose, "scatter", rule::take_transpose, vjps::take_transpose, nullptr},
    OpRow{Op::kCustomCall, "custom_call", nullptr, vjps::custom_call, call_flops},
    OpRow{Op::kCustomGradient, "custom_gradient", rule::identity, vjps::custom_gradient, nullptr},
    OpRow{Op::kFloat8Dot, "float8_dot", float8_dot, vjps::float8_dot, nullptr},
    OpRow{Op::kOptimizationBarrier, "optimization_barrier", rule::identity_all, vjps::optimization_barrier, nullptr},
    OpRow{Op::kPlace, "annotate_device_placement", rule::place, vjps::place, nullptr},
    OpRow{Op::kScan, "while", nullptr, vjps::scan, scan_flops},
    OpRow{Op::kShardingConstraint, "sharding_constraint", rule::identity, vjps::sharding_constraint, nullptr},
    OpRow{Op::kStopGradient, "stop_gradient", rule::identity, nullptr, nullptr},
};
static_assert(kTable.size() == static_cast<size_t>(Op::kCount));

}  // namespace

std::span<const OpRow> op_table() {
  return kTable;
}

const OpRow& op_row(Op op) {
  const OpRow& row = kTable[static_cast<size_t>(op)];
  internal_check(row.op == op, "op_table is out of order at {}", row.name);
  return row;
}

Tensor make_node(Op op, std::vector<Tensor> operands, Attributes attributes) {
  Block& block = Block::current();
  std::vector<Shape> shapes;
  for (Tensor& operand : operands) {
    operand = block.use(operand);
    shapes.push_back(operand.shape());
  }
  std::vector<Shape> results;
  try {
    results = op_row(op).shape(shapes, attributes);
  } catch (const InternalError& error) {
    throw InternalError("{} (at {})", error.what(), PathScope::path());
  }
  return block.append({op, std::move(operands), std::move(attributes), std::move(results), {}});
}

int64_t count_flops(const Block& block) {
  int64_t total = 0;
  for (int32_t id = 0; id < block.size(); ++id)
    if (const Node& node = block.node(id); op_row(node.op).flops != nullptr) total += op_row(node.op).flops(node);
  return total;
}

}  // namespace fettle
