#include "graph/block.h"

#include "base/error.h"
#include "graph/composite.h"
#include "graph/op_table.h"

namespace fettle {
namespace {
thread_local Block* current_block = nullptr;
thread_local std::string current_path;
}  // namespace

int64_t MeshAxes::size() const {
  int64_t n = 1;
  for (const auto& [name, size] : axes) n *= size;
  return n;
}

int64_t MeshAxes::size_of(const std::string& axis) const {
  for (const auto& [name, size] : axes)
    if (name == axis) return size;
  return 1;
}

const char* memory_kind(Memory memory) {
  return memory == Memory::kHost ? "pinned_host" : "device";
}

const Shape& Tensor::shape() const {
  internal_check(block_ != nullptr, "a null tensor has no shape");
  return block_->node(node_).results[result_];
}

int64_t Tensor::dim(int64_t i) const {
  const int64_t at = i < 0 ? i + rank() : i;
  internal_check(at >= 0 && at < rank(), "there is no dim {} in {}", i, shape().to_string());
  return dims()[at];
}

Block& Block::current() {
  internal_check(current_block != nullptr, "an op was made outside of any BuildScope");
  return *current_block;
}

const Lowering& Block::lowering() const {
  static const Lowering none;
  const Block* root = this;
  while (root->parent_ != nullptr) root = root->parent_;
  return root->lowering_ ? *root->lowering_ : none;
}

Tensor Block::append(Node node) {
  node.path = PathScope::path();
  nodes_.push_back(std::move(node));
  return tensor(size() - 1);
}

Tensor Block::parameter(const Shape& shape) {
  const Tensor t = placeholder(shape);
  inputs.push_back(t);
  return t;
}

Tensor Block::placeholder(const Shape& shape) {
  const Attributes attributes = ResultShape{shape};
  return append({Op::kParameter, {}, attributes, infer_shapes(Op::kParameter, {}, attributes), {}});
}

Tensor Block::use(const Tensor& t) {
  internal_check(static_cast<bool>(t), "an operand is a null tensor (at {})", PathScope::path());
  if (t.block() == this) return t;
  internal_check(parent_ != nullptr, "an operand belongs to a block that does not enclose this one (at {})",
                 PathScope::path());
  const Tensor outer = parent_->use(t);
  for (const auto& [seen, inner] : captured)
    if (seen == outer) return inner;
  const Tensor inner = parameter(outer.shape());
  captured.emplace_back(outer, inner);
  return inner;
}

BuildScope::BuildScope(Block& block) : previous_(current_block) {
  current_block = &block;
}
BuildScope::~BuildScope() {
  current_block = previous_;
}

PathScope::PathScope(const std::string& name, Kind kind) : previous_(current_path) {
  if (kind == kAbsolute) current_path.clear();
  if (!current_path.empty() && !name.empty()) current_path += '/';
  current_path += name;
}
PathScope::~PathScope() {
  current_path = previous_;
}
const std::string& PathScope::path() {
  return current_path;
}

}  // namespace fettle
