// Defines the op table: one table row per op, which states everything that the program knows about that op.
//
// The table rows are in rows/, one file for each group of ops. All other code reads the table and never switches over
// ops; only a few functions look for a certain op, such as a parameter, a scan or a custom call. The table also decides
// which tests are needed. tests/correct/graph_op_table_test.cpp fails if a table row has no forward case (which prints
// and runs the op) or no bad-shape case. It also fails if a table row has a VJP but no VJP case, or FLOPs but no FLOPs
// case. It also fails if an op does not always need all its operands, but its table row has no liveness case.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/block.h"

namespace fettle {

enum class Op : uint8_t {
  kParameter,
  kConstant,
  kIota,
  // Elementwise ops with one operand.
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
  // Elementwise ops with more operands, and conversions.
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
  // Ops that change the shape.
  kBroadcastInDim,
  kConcatenate,
  kDynamicSlice,
  kDynamicUpdateSlice,
  kPad,
  kReshape,
  kSlice,
  kTranspose,
  // Products, reductions, gather and scatter.
  kDotGeneral,
  kReduce,
  kTake,
  kTakeTranspose,
  // Ops for loops, gradients, kernels and placement.
  kCollectivePermute,
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

// The arguments of a VJP (vector-Jacobian product: an op's gradient): the node, its results, the cotangents of the
// results (null = zero), and which operands are active. Only the cotangents of active operands are wanted. At least one
// cotangent is not null, so the VJP of an op with one result need not check for null.
struct VjpArgs {
  Block& block;
  int32_t id;
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  std::vector<Tensor> cotangents;
  std::vector<bool> active;
  template <typename T>
  const T& get() const {
    return block.node(id).get<T>();
  }
};

class Printer;
struct NodeText;

// Returns the StableHLO text of the node after "%n = ". Returns "" when the function itself has printed the node and
// named its results.
using Spell = std::string (*)(NodeText& node, Printer& printer);
// Checks operand shapes and attributes and returns the results' shapes. Throws InternalError with the label of the
// broken constraint in the StableHLO specification, such as [dot_general_c10].
using ShapeRule = std::vector<Shape> (*)(std::span<const Shape> operands, const Attributes& attributes);
// Returns one cotangent per operand; null = zero.
using Vjp = std::vector<Tensor> (*)(const VjpArgs& args);
// Returns the floating-point operations of one execution, summed over all devices; a multiplication and an addition
// count as two. The type is double, because large steps on many devices exceed 2^63.
using Flops = double (*)(const Node& node);
// Returns which operands the node reads to compute the results that `live` marks (at least one). Pruning drops the
// other operands.
using Needs = std::vector<bool> (*)(const Node& node, const std::vector<bool>& live);
// The operands and results that stay when only some results are live.
struct Shrunk {
  std::vector<bool> operands, results;  // true: the operand or result stays
  Attributes attributes;
};
using Shrink = Shrunk (*)(const Node& node, const std::vector<bool>& live);
// Returns which results depend on the active operands (those whose gradient is wanted).
using Activity = std::vector<bool> (*)(const Node& node, const std::vector<bool>& active);
// Returns sum + result in f32. `sum` is f32. `result` is the result of the node; it may have any float dtype, and
// nothing else reads it. The gradient of a value that a loop captures is summed over the trips in this way.
using Accumulate = Tensor (*)(const Tensor& sum, const Tensor& result);
// Returns true when the node is printed late: just before its first use, not in its own place. `operand_late` says
// whether the node's first operand is printed late.
using Late = bool (*)(const Node& node, bool operand_late);

// When a result is saved for the reverse loop of a scan. If it is not saved, the reverse loop computes it again.
enum class Saved : uint8_t {
  kNever,      // cheap: constants, and ops that only move, mark or widen values
  kAsProduct,  // expensive: saved under Remat::kDots and kNone
  kAsValue,    // saved under Remat::kNone if it depends on a carry
};

// The same Saved for all nodes of an op, or a function of the node.
struct SavedRule {
  constexpr SavedRule(Saved saved) : always(saved) {}                   // NOLINT: implicit, for rows with a constant
  constexpr SavedRule(Saved (*saved)(const Node&)) : of_node(saved) {}  // NOLINT: implicit, for rows with a function
  Saved operator()(const Node& node) const { return of_node == nullptr ? always : of_node(node); }

  Saved always = Saved::kNever;
  Saved (*of_node)(const Node& node) = nullptr;
};

// A column that every table row must state; nullptr says that the op has no such function.
template <typename T>
struct Stated {
  template <typename F>
  constexpr Stated(F f) : value(f) {}  // NOLINT: implicit, so that a table row can state the function itself
  constexpr operator T() const { return value; }
  T value;
};

struct OpRow {
  Op op;
  std::string_view name;  // StableHLO's name, or ours for an op that StableHLO lacks
  Stated<Spell> spell;    // null: only differentiation uses the op; pruning replaces it by its first operand
  Stated<ShapeRule> shape;
  Stated<Vjp> vjp;      // null: gradients do not flow through the op
  Stated<Flops> flops;  // null: not counted
  Stated<Needs> needs;
  Stated<SavedRule> saved;
  // Columns that few ops state.
  bool apart = false;               // true: result i depends only on operand i; false: on all operands
  Activity activity = nullptr;      // null: computed from `apart`
  bool view = false;                // on one device, the result has the operand's elements in the same order
  Accumulate accumulate = nullptr;  // null: computes sum + result, with the result converted to f32
  Shrink shrink = nullptr;          // null: if one result is live, pruning keeps all results
  Late late = nullptr;              // null: the node is printed in its own place
};

const OpRow& op_row(Op op);
std::span<const OpRow> op_table();  // the table rows in the order of Op

// Returns the shapes that the op's rule computes. Throws InternalError with the broken constraint and the current path.
std::vector<Shape> infer_shapes(Op op, std::span<const Shape> operands, const Attributes& attributes);
// Infers the shapes, appends the node to the current block and returns its first result.
Tensor make_node(Op op, std::vector<Tensor> operands, Attributes attributes = {});
// Returns all results of the node whose first result is `first`.
std::vector<Tensor> all_results(const Tensor& first);

// Returns the floating-point operations of one execution of `block`. The body of a loop counts once per trip.
double count_flops(const Block& block);

}  // namespace fettle
