// Defines the op table: one row per op gives its StableHLO spelling, shape rule, VJP and FLOPs.
//
// The table is also the test plan: tests/correct/graph_op_table_test.cpp fails for a row without a forward case, a
// finite-difference check of its VJP (where it has one) and a bad-shape case.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/block.h"

namespace fettle {

enum class Op : uint8_t {
  kParameter,
  kConstant,
  kIota,
  // Elementwise, one operand.
  kAbs,
  kCosine,
  kErf,
  kExponential,
  kFloor,
  kIsFinite,
  kLog,
  kLogistic,
  kNegate,
  kNot,
  kRsqrt,
  kSign,
  kSine,
  kSqrt,
  kTanh,
  // Elementwise, two operands.
  kAdd,
  kAnd,
  kDivide,
  kMaximum,
  kMinimum,
  kMultiply,
  kOr,
  kPower,
  kRemainder,
  kShiftLeft,
  kShiftRightLogical,
  kSubtract,
  kXor,
  kCompare,
  kSelect,
  kConvert,
  kBitcastConvert,
  // Shape.
  kBroadcastInDim,
  kConcatenate,
  kDynamicSlice,
  kDynamicUpdateSlice,
  kPad,
  kReshape,
  kSlice,
  kTranspose,
  // Contractions.
  kDotGeneral,
  kReduce,
  kTake,
  kTakeTranspose,
  // Structure.
  kCustomCall,
  kCustomGradient,
  kFloat8Dot,
  kOptimizationBarrier,
  kPlace,
  kScan,
  kShardingConstraint,
  kStopGradient,
  kCount
};

// What a VJP is given: the node, its results, the cotangents of the results (null = zero), which operands matter.
struct VjpArgs {
  Block& block;
  int32_t id;
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  std::vector<Tensor> cotangents;
  std::vector<bool> active;
  const Attributes& attributes() const { return block.node(id).attributes; }
};

// Checks operand shapes and attributes (labels as in the StableHLO spec) and gives the results' shapes.
using ShapeRule = std::vector<Shape> (*)(std::span<const Shape> operands, const Attributes& attributes);
// Gives one cotangent per operand; null = zero.
using Vjp = std::vector<Tensor> (*)(const VjpArgs& args);
// Floating-point operations of one execution, multiply and add counted apart.
using Flops = int64_t (*)(const Node& node);

struct OpRow {
  Op op;
  std::string_view name;  // StableHLO's, or ours where there is none
  ShapeRule shape;        // null: the builder gives the shapes
  Vjp vjp;                // null: gradients do not flow through
  Flops flops;            // null: not counted
};

const OpRow& op_row(Op op);
std::span<const OpRow> op_table();

// Infers the shapes, appends the node to the current block and returns its first result.
Tensor make_node(Op op, std::vector<Tensor> operands, Attributes attributes = {});

// Floating-point operations of one execution of `block`, loops counted with their trips.
int64_t count_flops(const Block& block);

}  // namespace fettle
