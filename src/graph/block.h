// Defines Block: a list of nodes in order, the body of a program or of a scan.
//
// Ops append to the innermost block under construction (Block::current()). A tensor of an enclosing block that is used
// inside becomes a captured input of the inner one, so model code is written as plain closures.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/tensor.h"

namespace fettle {

enum class Op : uint8_t;
struct CustomCall;
struct Lowering;

// StableHLO's dot_dimension_numbers.
struct DotDims {
  Dims lhs_batching, rhs_batching, lhs_contracting, rhs_contracting;
};

// How much of a scan's body is saved for its reverse loop; the rest is computed again.
enum class Remat : uint8_t {
  kNone,  // every value the reverse loop reads is saved
  kDots,  // results of dot_general are saved
  kFull,  // only the loop's carried inputs are saved
};

// What a node says beyond its operands; each op reads the fields its row in op_table.cpp names.
struct Attributes {
  Dims dims;                // dimension list of the op
  Dims low, high, strides;  // slice: start, limit, stride; pad: low, high, interior
  DotDims dot;
  std::string text;                                   // compare direction, reduce kind, custom_call target
  std::string config;                                 // float8_dot: dtype of the gradient
  std::shared_ptr<const CustomCall> call;             // custom_call
  double splat = 0;                                   // constant: the value of every element ...
  std::shared_ptr<const std::vector<double>> values;  // ... or, when set, all of them
  Partition partition;                                // sharding_constraint, place
  Memory memory = Memory::kDevice;                    // place
  std::shared_ptr<Block> body;                        // scan
  int64_t trips = 0, carries = 0, xs = 0;             // scan: operands are carries, xs, then captured
  bool reverse = false;                               // scan: from the last slice to the first
  bool limited = false;                               // scan: carry 0 says how many trips are made
  Remat remat = Remat::kFull;                         // scan
};

struct Node {
  Op op;
  std::vector<Tensor> operands;
  Attributes attributes;
  std::vector<Shape> results;
  std::string path;  // "layers/self_attn/q_proj"
};

class Block {
 public:
  explicit Block(Block* parent = nullptr) : parent_(parent) {}
  explicit Block(std::shared_ptr<const Lowering> lowering) : parent_(nullptr), lowering_(std::move(lowering)) {}
  Block(const Block&) = delete;

  // The block that ops append to. Throws InternalError outside of any BuildScope.
  static Block& current();

  Tensor append(Node node);              // first result
  Tensor parameter(const Shape& shape);  // a new input, after those there are
  Tensor tensor(int32_t node, int32_t result = 0) { return {this, node, result}; }
  // `t` as seen from this block: itself, or the captured input that stands for it.
  Tensor use(const Tensor& t);

  Block* parent() const { return parent_; }
  // What the program is built for: that of the outermost block; one device without kernels when it has none.
  const Lowering& lowering() const;
  const Node& node(int32_t id) const { return nodes_[id]; }
  Node& node(int32_t id) { return nodes_[id]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }

  std::vector<Tensor> inputs;  // parameter nodes in order
  std::vector<Tensor> outputs;
  // Pairs of an outer tensor and the input that stands for it, in the order of capture.
  std::vector<std::pair<Tensor, Tensor>> captured;

 private:
  Block* parent_;
  std::shared_ptr<const Lowering> lowering_;
  std::deque<Node> nodes_;
};

// While alive, ops append to `block`.
class BuildScope {
 public:
  explicit BuildScope(Block& block);
  ~BuildScope();
  BuildScope(const BuildScope&) = delete;

 private:
  Block* previous_;
};

// While alive, nodes carry "<outer path>/<name>", or `name` alone when it is absolute.
class PathScope {
 public:
  enum Kind { kNested, kAbsolute };
  explicit PathScope(const std::string& name, Kind kind = kNested);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  static const std::string& path();

 private:
  std::string previous_;
};

}  // namespace fettle
