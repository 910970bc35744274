#include "graph/slices_in_place.h"

#include <map>
#include <optional>

#include "graph/custom_call.h"
#include "graph/op_table.h"
#include "graph/print.h"

namespace fettle {
namespace {

using Call = std::shared_ptr<const CustomCall>;

bool reads_slices(const Node& node) {
  return node.op == Op::kCustomCall && node.get<Call>()->reads_slices;
}

// Returns the values of the body that a call can read in place: slices of xs, and views of such slices. Leaves out a
// slice and its views if anything other than such calls and views reads them. Maps each value to the number of the
// loop's operand from which the slice is cut.
std::map<ValueId, int64_t> readable_slices(const Loop& loop) {
  const Block& body = *loop.body;
  std::map<ValueId, int64_t> slices;
  std::map<int64_t, bool> cut_out;
  for (int64_t i = loop.carries; i < loop.carries + loop.xs; ++i) slices[id_of(body.inputs[1 + i])] = i;
  auto slice_at = [&](const Tensor& t) {
    const auto at = slices.find(id_of(t));
    return at == slices.end() ? std::nullopt : std::optional(at->second);
  };
  for (int32_t id = 0; id < body.size(); ++id)
    for (const Tensor& operand : body.node(id).operands)
      if (const auto slice = slice_at(operand)) {
        if (op_row(body.node(id).op).view)
          slices[{id, 0}] = *slice;
        else if (!reads_slices(body.node(id)))
          cut_out[*slice] = true;
      }
  for (const Tensor& output : body.outputs)
    if (const auto slice = slice_at(output)) cut_out[*slice] = true;
  std::erase_if(slices, [&](const auto& entry) { return cut_out.contains(entry.second); });
  return slices;
}

class Copy {
 public:
  explicit Copy(const Block& block) : from_(block), to_(std::make_shared<Block>()) {}

  // Replaces the body of the loop `node` by a copy of the body. Each stack that a call in the copy reads becomes a
  // further operand of `node`.
  static void copy_body(Node& node) {
    Loop loop = *node.loop();
    Copy copy(*loop.body);
    copy.slices_ = readable_slices(loop);
    copy.loop_ = &node;
    loop.body = copy.whole();
    node.attributes = std::move(loop);
  }

  std::shared_ptr<Block> whole() {
    for (const Tensor& input : from_.inputs) copied_[id_of(input)] = to_->parameter(input.shape());
    for (int32_t id = 0; id < from_.size(); ++id)
      if (from_.node(id).op != Op::kParameter) copy_node(id);
    for (const Tensor& output : from_.outputs) to_->outputs.push_back(copied_.at(id_of(output)));
    return to_;
  }

 private:
  void copy_node(int32_t id) {
    const Node& original = from_.node(id);
    Node node = original;
    if (reads_slices(node)) read_in_place(node, original);
    for (size_t i = 0; i < original.operands.size(); ++i)
      if (node.operands[i] == original.operands[i]) node.operands[i] = copied_.at(id_of(original.operands[i]));
    if (node.loop() != nullptr) copy_body(node);
    const Tensor first = append(std::move(node));
    for (size_t r = 0; r < original.results.size(); ++r)
      copied_[{id, static_cast<int32_t>(r)}] = to_->tensor(first.node(), static_cast<int32_t>(r));
  }

  Tensor append(Node node) {
    const std::string path = node.path;
    const Tensor first = to_->append(std::move(node));
    to_->node(first.node()).path = path;
    return first;
  }

  // Some operands of the call `node` may be slices of stacks. Replaces each such operand by its stack. If there are
  // such operands, also adds the index of the trip and the attribute kSlicesAttribute.
  void read_in_place(Node& node, const Node& original) {
    std::vector<int64_t> attribute;
    for (size_t i = 0; i < original.operands.size(); ++i) {
      const auto slice = slices_.find(id_of(original.operands[i]));
      if (slice == slices_.end()) continue;
      const Shape& whole = loop_->operands[slice->second].shape();
      node.operands[i] = stack_as(slice->second, original.operands[i].shape(), node.path);
      attribute.push_back(static_cast<int64_t>(i));
      attribute.push_back(whole.dims[0] > loop_->loop()->trips ? loop_->loop()->first : 0);
    }
    if (attribute.empty()) return;
    node.operands.push_back(copied_.at(id_of(from_.inputs[0])));
    auto call = std::make_shared<CustomCall>(*node.get<Call>());
    call->attributes[kSlicesAttribute] = attribute;
    call->in.resize(node.operands.size());
    node.attributes = Call(std::move(call));
  }

  // Operand number `xs` of the loop is a stack. Returns it as a tensor of the body, reshaped so that its slices have
  // the shape `slice`.
  Tensor stack_as(int64_t xs, const Shape& slice, const std::string& path) {
    Tensor& stack = stacks_[xs];
    if (!stack) {
      const Tensor operand = loop_->operands[xs];
      stack = to_->parameter(operand.shape());
      loop_->operands.push_back(operand);
    }
    Shape shape = slice;
    shape.dims.insert(shape.dims.begin(), stack.dims()[0]);
    if (shape == stack.shape()) return stack;
    return append({Op::kReshape, {stack}, ResultDims{shape.dims}, {shape}, path});
  }

  const Block& from_;
  std::shared_ptr<Block> to_;
  Node* loop_ = nullptr;               // the loop whose body is copied; null for the outermost block
  std::map<ValueId, int64_t> slices_;  // values of the body that a call reads in place (readable_slices)
  std::map<int64_t, Tensor> stacks_;   // the body's new inputs: whole stacks, by the number of the loop's operand
  std::map<ValueId, Tensor> copied_;   // the copy of each value
};

}  // namespace

std::shared_ptr<Block> read_slices_in_place(const Block& block) {
  return Copy(block).whole();
}

}  // namespace fettle
