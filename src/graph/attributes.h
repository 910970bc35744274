// Defines the typed attributes of nodes: one struct for each kind of op that has attributes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/arrays/shape.h"
#include "base/error.h"
#include "graph/tensor.h"

namespace fettle {

class Block;
struct CustomCall;
struct GradientRule;

// StableHLO's dot_dimension_numbers.
struct DotDims {
  Dims lhs_batching, rhs_batching, lhs_contracting, rhs_contracting;
};

// Which values of a scan's body are saved for the reverse loop, which computes the gradient. The reverse loop computes
// the other values again. Only values that the reverse loop reads are saved.
enum class Remat : uint8_t {
  // Saves what kDots saves, and all other values that depend on a carry. Exceptions: cheap values (Saved::kNever), and
  // conversions to a wider dtype, whose operand is saved instead.
  kNone,
  // Saves what kFull saves, and the results of matrix products, inner loops, custom gradients and custom calls, except
  // elementwise custom calls.
  kDots,
  // Saves only the carries with which each trip begins.
  kFull,
};

enum class Direction : uint8_t { kEQ, kNE, kGE, kGT, kLE, kLT };
enum class ReduceKind : uint8_t { kAdd, kMaximum, kMinimum, kAnd, kOr };

struct ResultShape {  // attributes of the op `parameter`
  Shape shape;
};
struct ConstantValue {
  Shape shape;
  double splat = 0;                                   // value of every element if `values` is null
  std::shared_ptr<const std::vector<double>> values;  // all elements in row-major order; null: see `splat`
};
struct IotaDim {
  Shape shape;
  int64_t dim;
};
struct Comparison {
  Direction direction;
};
struct ResultDtype {  // attributes of convert and bitcast_convert
  DType dtype;
};
struct Broadcast {
  Dims result;
  Dims dims;  // dim i of the operand becomes dim dims[i] of the result
};
// reshape: the result's dims. dynamic_slice: the sizes. scatter: the table's dims without the last one.
struct ResultDims {
  Dims dims;
};
struct Permutation {
  Dims dims;
};
struct ConcatenateDim {
  int64_t dim;
};
struct SliceRange {  // one entry per dim
  Dims start, limit, strides;
};
struct Padding {  // one entry per dim; low and high may be negative
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
// Shard i of the result along `dim` is shard sources[i] of the operand. `partition` splits `dim` over one mesh axis.
struct ShardMove {
  int64_t dim;
  std::vector<int64_t> sources;
  Partition partition;
};
// A scan. Operands: `carries`, then `xs`, then the values that the body captures. The body's inputs: the index, the
// carries, one slice of each of the xs, the captured values. The body's outputs: the carries, then one slice of each
// stacked result. If one of the xs has more than `trips` slices, it is read from slice `first` on. The results and the
// other xs start at slice 0.
struct Loop {
  std::shared_ptr<Block> body;
  int64_t trips = 0, carries = 0, xs = 0, first = 0;
  bool reverse = false;  // runs from the last slice to the first
  bool limited = false;  // carry 0 is the number of trips to make
  Remat remat = Remat::kFull;
  // The mesh axis whose devices run the trips at the same time; "" when the trips run one after another. A scan with an
  // axis has no carries.
  std::string axis = {};
};

using Attributes =
    std::variant<std::monostate, ResultShape, ConstantValue, IotaDim, Comparison, ResultDtype, Broadcast, ResultDims,
                 Permutation, ConcatenateDim, SliceRange, Padding, DotProduct, Float8Product, Reduction, Placement,
                 Constraint, ShardMove, Loop, std::shared_ptr<const CustomCall>, std::shared_ptr<const GradientRule>>;

// Returns the attributes as a T. Throws InternalError when they are of another kind.
template <typename T>
const T& as(const Attributes& attributes) {
  const T* found = std::get_if<T>(&attributes);
  internal_check(found != nullptr, "a node has attributes of kind {}, but its op takes another kind",
                 attributes.index());
  return *found;
}

}  // namespace fettle
