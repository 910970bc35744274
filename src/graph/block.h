// Defines Block: a list of nodes in order, the body of a program or of a scan.
//
// Ops append to the innermost block under construction (Block::current()). If an op in this block uses a tensor of an
// enclosing block, this block captures the tensor as an input. So the code of a loop's body can use any tensor of the
// code around it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/tensor.h"

namespace fettle {

enum class Op : uint8_t;
struct Lowering;

struct Node {
  Op op;
  std::vector<Tensor> operands;
  Attributes attributes;
  std::vector<Shape> results;
  std::string path;  // "layers/self_attn/q_proj"

  // Returns the attributes as a T. Throws InternalError when the node has attributes of another kind.
  template <typename T>
  const T& get() const {
    return as<T>(attributes);
  }
  // Returns the loop's attributes when this node is a loop, else null.
  const Loop* loop() const { return std::get_if<Loop>(&attributes); }
};

class Block {
 public:
  explicit Block(Block* parent = nullptr) : parent_(parent) {}
  explicit Block(std::shared_ptr<const Lowering> lowering) : parent_(nullptr), lowering_(std::move(lowering)) {}
  Block(const Block&) = delete;

  // Returns the block that ops append to. Throws InternalError outside of any BuildScope.
  static Block& current();

  Tensor append(Node node);              // returns the first result
  Tensor parameter(const Shape& shape);  // adds an input after the others
  // Makes a parameter node without adding it to `inputs`; the caller adds it.
  Tensor placeholder(const Shape& shape);
  Tensor tensor(int32_t node, int32_t result = 0) { return {this, node, result}; }
  // Returns `t` as seen from this block: `t` itself, or the captured input that stands for it.
  Tensor use(const Tensor& t);

  Block* parent() const { return parent_; }
  // Returns the program's mesh and choice of kernels, which the outermost block stores. The default is one device and
  // no kernels.
  const Lowering& lowering() const;
  const Node& node(int32_t id) const { return nodes_[id]; }
  Node& node(int32_t id) { return nodes_[id]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }

  std::vector<Tensor> inputs;  // parameter nodes in order
  std::vector<Tensor> outputs;
  // The captured tensors, in the order of capture. Each pair has a tensor of an enclosing block, and the input of this
  // block that stands for it.
  std::vector<std::pair<Tensor, Tensor>> captured;

 private:
  Block* parent_;
  std::shared_ptr<const Lowering> lowering_;
  std::deque<Node> nodes_;
};

// While a BuildScope exists, ops append to its block.
class BuildScope {
 public:
  explicit BuildScope(Block& block);
  ~BuildScope();
  BuildScope(const BuildScope&) = delete;

 private:
  Block* previous_;
};

// While a PathScope exists, new nodes get the path "<outer path>/<name>". With kAbsolute, they get the path `name`.
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
