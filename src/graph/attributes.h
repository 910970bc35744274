// Defines the typed attributes of nodes: one struct for each kind of op that has any.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "base/arrays/shape.h"
#include "base/error.h"
#include "graph/tensor.h"

namespace fettle {

class Block;
struct CustomCall;

// StableHLO's dot_dimension_numbers.
struct DotDims {
  Dims lhs_batching, rhs_batching, lhs_contracting, rhs_contracting;
};

// Which values of a scan's body are saved for its reverse loop; the others are computed again.
enum class Remat : uint8_t {
  kNone,  // every value that the reverse loop reads is saved
  kDots,  // results of matrix products, inner loops and custom calls are saved
  kFull,  // only the loop's carried inputs are saved
};

enum class Direction : uint8_t { kEQ, kNE, kGE, kGT, kLE, kLT };
enum class ReduceKind : uint8_t { kAdd, kMaximum, kMinimum, kAnd, kOr };

struct ResultShape {  // parameter
  Shape shape;
};
struct ConstantValue {
  Shape shape;
  double splat = 0;                                   // the value of every element ...
  std::shared_ptr<const std::vector<double>> values;  // ... or, when set, all of them in row-major order
};
struct IotaDim {
  Shape shape;
  int64_t dim;
};
struct Comparison {
  Direction direction;
};
struct ResultDtype {  // convert, bitcast_convert
  DType dtype;
};
struct Broadcast {
  Dims result;
  Dims dims;  // where each dim of the operand goes
};
struct ResultDims {  // reshape; dynamic_slice: sizes; scatter: the table's dims but the last
  Dims dims;
};
struct Permutation {
  Dims dims;
};
struct ConcatenateDim {
  int64_t dim;
};
struct SliceRange {  // one entry a dim
  Dims start, limit, strides;
};
struct Padding {  // one entry a dim; low and high may be negative
  Dims low, high, interior;
};
struct DotProduct {
  DotDims dims;
  DType result;
};
struct Float8Product {
  DotDims dims;
  Float8 types;
};
struct Reduction {
  ReduceKind kind;
  Dims dims;
};
struct Placement {
  Memory memory;
  Partition partition;
};
struct Constraint {
  Partition partition;
};
// Operands: `carries`, then `xs`, then the values that the body captures. Inputs of the body: the index, carries,
// slices of the xs, captured values. Outputs of the body: carries, then slices of the stacked results.
struct Loop {
  std::shared_ptr<Block> body;
  int64_t trips = 0, carries = 0, xs = 0;
  bool reverse = false;  // from the last slice to the first
  bool limited = false;  // carry 0 says how many trips are made
  Remat remat = Remat::kFull;
};

using Attributes = std::variant<std::monostate, ResultShape, ConstantValue, IotaDim, Comparison, ResultDtype, Broadcast,
                                ResultDims, Permutation, ConcatenateDim, SliceRange, Padding, DotProduct, Float8Product,
                                Reduction, Placement, Constraint, Loop, std::shared_ptr<const CustomCall>>;

// The attributes as a T. Throws InternalError when they are of another kind.
template <typename T>
const T& as(const Attributes& attributes) {
  const T* found = std::get_if<T>(&attributes);
  internal_check(found != nullptr, "a node has attributes of kind {}, which its op does not take", attributes.index());
  return *found;
}

}  // namespace fettle
