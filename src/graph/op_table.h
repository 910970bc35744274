// Defines the op table: one row per op, which states everything that the program knows about that op.
//
// The rows stand in rows/, one file for each group of ops. Everything else asks the row: no other code may switch over
// ops. The table is also the test plan: tests/correct/graph_op_table_test.cpp fails for a row without a forward case
// (which prints and runs the op), a bad-shape case, and a case for each of VJP, FLOPs and liveness that it states.
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

// What a VJP is given: the node, its results, the cotangents of the results (null = zero; at least one is not null, the
// first one where there is only one result), and which operands are active: only their cotangents are wanted.
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

// The StableHLO text of the node after "%n = ". An empty text: the function has printed and named the results itself.
using Spell = std::string (*)(NodeText& node, Printer& printer);
// Checks operand shapes and attributes and gives the results' shapes. Throws InternalError with the label of the broken
// constraint in the StableHLO specification, such as [dot_general_c10].
using ShapeRule = std::vector<Shape> (*)(std::span<const Shape> operands, const Attributes& attributes);
// Gives one cotangent per operand; null = zero.
using Vjp = std::vector<Tensor> (*)(const VjpArgs& args);
// Floating-point operations of one execution over all devices; a multiplication and an addition count as two.
using Flops = int64_t (*)(const Node& node);
// Which operands the node reads to compute its `live` results, of which at least one is live. Pruning drops the others.
using Needs = std::vector<bool> (*)(const Node& node, const std::vector<bool>& live);
// What stays of a node of which only some results are live.
struct Shrunk {
  std::vector<bool> operands, results;  // those that stay
  Attributes attributes;
};
using Shrink = Shrunk (*)(const Node& node, const std::vector<bool>& live);
// Which results depend on the active operands (those whose gradient is wanted).
using Activity = std::vector<bool> (*)(const Node& node, const std::vector<bool>& active);
// True when the node is printed where it is first used, not where it was made. `operand_late`: its first operand is.
using Late = bool (*)(const Node& node, bool operand_late);

// When a result is saved for the reverse loop of a scan; otherwise it is computed again there.
enum class Saved : uint8_t {
  kNever,      // cheap: constants, and ops that only move or mark values
  kAsProduct,  // expensive: under Remat::kDots and kNone
  kAsValue,    // under Remat::kNone
};

// A column that every row must state; nullptr says that the op has none.
template <typename T>
struct Stated {
  template <typename F>
  constexpr Stated(F f) : value(f) {}  // NOLINT: a row names the function alone
  constexpr operator T() const { return value; }
  T value;
};

struct OpRow {
  Op op;
  std::string_view name;  // StableHLO's, or ours where it has none
  Stated<Spell> spell;    // null: a marker for the gradient alone, which pruning replaces by its first operand
  Stated<ShapeRule> shape;
  Stated<Vjp> vjp;      // null: gradients do not flow through
  Stated<Flops> flops;  // null: not counted
  Stated<Needs> needs;
  Stated<Saved> saved;
  // Columns for few ops.
  Activity activity = nullptr;  // null: all float results depend on every operand
  Shrink shrink = nullptr;      // null: all results stay
  Late late = nullptr;          // null: printed where it was made
};

const OpRow& op_row(Op op);
std::span<const OpRow> op_table();  // in the order of Op

// The shapes that the op's rule gives. Throws InternalError with the broken constraint and the current path.
std::vector<Shape> infer_shapes(Op op, std::span<const Shape> operands, const Attributes& attributes);
// Infers the shapes, appends the node to the current block and returns its first result.
Tensor make_node(Op op, std::vector<Tensor> operands, Attributes attributes = {});
// All results of the node that `first` is the first result of.
std::vector<Tensor> all_results(const Tensor& first);

// Floating-point operations of one execution of `block`, loops counted with their trips.
int64_t count_flops(const Block& block);

}  // namespace fettle
