#include "graph/slices_in_place.h"

#include <map>
#include <optional>

#include "graph/custom_call.h"
#include "graph/op_table.h"
#include "graph/ops.h"
#include "graph/print.h"

namespace fettle {
namespace {

using Call = std::shared_ptr<const CustomCall>;

bool takes_slices(const Node& node) {
  return node.op == Op::kCustomCall && node.get<Call>()->takes_slices;
}

Dims stacked(int64_t slices, Dims slice) {
  slice.insert(slice.begin(), slices);
  return slice;
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
        else if (!takes_slices(body.node(id)))
          cut_out[*slice] = true;
      }
  for (const Tensor& output : body.outputs)
    if (const auto slice = slice_at(output)) cut_out[*slice] = true;
  std::erase_if(slices, [&](const auto& entry) { return cut_out.contains(entry.second); });
  return slices;
}

// Returns the results of calls that are slices of the loop's stacked results, directly or through views. Maps each to
// the number of the stacked result. A call can write a slice to only one stack.
std::map<ValueId, int64_t> writable_slices(const Loop& loop) {
  const Block& body = *loop.body;
  std::map<ValueId, int64_t> out;
  for (int64_t r = loop.carries; r < static_cast<int64_t>(body.outputs.size()); ++r) {
    Tensor value = body.outputs[static_cast<size_t>(r)];
    while (op_row(body.node(value.node()).op).view) value = body.node(value.node()).operands[0];
    if (takes_slices(body.node(value.node()))) out.emplace(id_of(value), r);
  }
  return out;
}

// Returns true if the compiler would fill the stacked results of the loop with zeros that nothing reads, in a program
// that has unwritten memory.
bool needs_no_zeros(const Loop& loop) {
  const Block& body = *loop.body;
  if (loop.limited || static_cast<int64_t>(body.outputs.size()) == loop.carries) return false;
  for (int32_t id = 0; id < body.size(); ++id)
    if (takes_slices(body.node(id))) return true;
  return false;
}

class Copy {
 public:
  explicit Copy(const Block& block) : from_(block), to_(std::make_shared<Block>()) {}

  std::shared_ptr<Block> whole() {
    const BuildScope scope(*to_);
    copy_inputs();
    for (int32_t id = 0; id < from_.size(); ++id)
      if (from_.node(id).op != Op::kParameter) copy_node(id);
    for (size_t r = 0; r < from_.outputs.size(); ++r) {
      const auto stack = stacked_.find(static_cast<int64_t>(r));
      to_->outputs.push_back(stack == stacked_.end() ? copied_.at(id_of(from_.outputs[r]))
                                                     : updated_stack(*stack, from_.outputs[r]));
    }
    return to_;
  }

 private:
  // The stacks before the call that writes a slice of them become inputs after the carries.
  void copy_inputs() {
    const Loop* loop = loop_ == nullptr ? nullptr : loop_->loop();
    for (size_t i = 0; i < from_.inputs.size(); ++i) {
      if (loop != nullptr && static_cast<int64_t>(i) == 1 + loop->carries) stack_inputs();
      copied_[id_of(from_.inputs[i])] = to_->parameter(from_.inputs[i].shape());
    }
    if (loop != nullptr && static_cast<int64_t>(from_.inputs.size()) == 1 + loop->carries) stack_inputs();
  }

  void stack_inputs() {
    if (!carries_stacks_) return;
    for (auto r = static_cast<size_t>(loop_->loop()->carries); r < loop_->results.size(); ++r)
      stacked_[static_cast<int64_t>(r)] = to_->parameter(loop_->results[r]);
  }

  void copy_node(int32_t id) {
    const Node& original = from_.node(id);
    const PathScope path(original.path, PathScope::kAbsolute);
    Node node = original;
    if (takes_slices(node)) use_in_place(node, id);
    for (size_t i = 0; i < original.operands.size(); ++i)
      if (node.operands[i] == original.operands[i]) node.operands[i] = copied_.at(id_of(original.operands[i]));
    if (node.loop() != nullptr) copy_body(node);
    const Tensor first = append(std::move(node));
    for (size_t r = 0; r < original.results.size(); ++r)
      copied_[{id, static_cast<int32_t>(r)}] = to_->tensor(first.node(), static_cast<int32_t>(r));
    if (op_row(original.op).view)
      if (const auto of = views_.find(id_of(original.operands[0])); of != views_.end()) views_[{id, 0}] = of->second;
    cut_out_written(id);
  }

  Tensor append(Node node) {
    const std::string path = node.path;
    const Tensor first = to_->append(std::move(node));
    to_->node(first.node()).path = path;
    return first;
  }

  // Replaces the body of the loop `node` by a copy of the body. Each stack that a call in the copy reads becomes a
  // further operand of `node`. Stacked results may become carries of `node`.
  void copy_body(Node& node) {
    Loop loop = *node.loop();
    Copy copy(*loop.body);
    copy.slices_ = readable_slices(loop);
    if (loop.axis.empty()) {
      copy.written_ = writable_slices(loop);
      copy.carries_stacks_ = !copy.written_.empty() || needs_no_zeros(loop);
    }
    copy.loop_ = &node;
    loop.body = copy.whole();
    if (copy.carries_stacks_) {
      const std::vector<Tensor> stacks = unwritten_stacks(loop, node);
      node.operands.insert(node.operands.begin() + loop.carries, stacks.begin(), stacks.end());
      loop.carries = static_cast<int64_t>(node.results.size());
    }
    node.attributes = std::move(loop);
  }

  // Returns the first values of the stacks that become carries of the loop `node`.
  std::vector<Tensor> unwritten_stacks(const Loop& loop, const Node& node) {
    const std::vector<Shape> shapes(node.results.begin() + loop.carries, node.results.end());
    std::vector<Tensor> out;
    if (loop.limited) {
      for (const Shape& shape : shapes) out.push_back(full(0, shape));
      return out;
    }
    std::vector<Tensor> varying(node.operands.begin(), node.operands.begin() + loop.carries);
    if (loop_ != nullptr) varying.push_back(copied_.at(id_of(from_.inputs[0])));
    return custom_call({.target = kUnwrittenTarget, .attributes = {{"loop", int64_t{to_->size()}}}, .results = shapes},
                       varying);
  }

  // Operands of the call `node`, a copy of the node `id`, may be slices of stacks, and its results may be slices that
  // it writes. Replaces these operands and results by their stacks, and adds the operands and attributes that
  // slices_in_place.h describes.
  void use_in_place(Node& node, int32_t id) {
    const Node& original = from_.node(id);
    auto call = std::make_shared<CustomCall>(*node.get<Call>());
    std::vector<int64_t> read, written;
    for (size_t i = 0; i < original.operands.size(); ++i) {
      const Tensor& operand = original.operands[i];
      if (const auto slice = slices_.find(id_of(operand)); slice != slices_.end()) {
        const Shape& whole = loop_->operands[slice->second].shape();
        node.operands[i] = as_stack_of(stack_of_operand(slice->second), operand.dims());
        read.push_back(static_cast<int64_t>(i));
        read.push_back(whole.dims[0] > loop_->loop()->trips ? loop_->loop()->first : 0);
      } else if (const auto view = views_.find(id_of(operand)); view != views_.end()) {
        node.operands[i] = as_stack_of(stacked_.at(view->second), operand.dims());
        read.push_back(static_cast<int64_t>(i));
        read.push_back(0);
      }
    }
    for (int32_t k = 0; k < static_cast<int32_t>(original.results.size()); ++k) {
      const auto slice = written_.find({id, k});
      if (slice == written_.end()) continue;
      const Tensor stack = as_stack_of(stacked_.at(slice->second), original.results[static_cast<size_t>(k)].dims);
      call->aliases.emplace_back(k, static_cast<int64_t>(node.operands.size()));
      call->results[static_cast<size_t>(k)] = node.results[static_cast<size_t>(k)] = stack.shape();
      node.operands.push_back(stack);
      written.push_back(k);
    }
    if (read.empty() && written.empty()) return;
    if (!read.empty()) call->attributes[kSlicesAttribute] = read;
    if (!written.empty()) call->attributes[kWrittenSlicesAttribute] = written;
    node.operands.push_back(copied_.at(id_of(from_.inputs[0])));
    call->in.resize(node.operands.size());
    node.attributes = Call(std::move(call));
  }

  // The call `id` may have written slices of stacks. Other ops get these slices cut out of the stacks.
  void cut_out_written(int32_t id) {
    for (int32_t k = 0; k < static_cast<int32_t>(from_.node(id).results.size()); ++k) {
      const auto slice = written_.find({id, k});
      if (slice == written_.end()) continue;
      Tensor& value = copied_.at({id, k});
      stacked_[slice->second] = value;
      views_[{id, k}] = slice->second;
      Dims row = value.dims();
      row[0] = 1;
      value = reshape(dynamic_slice(value, starts_in(value), row), from_.node(id).results[static_cast<size_t>(k)].dims);
    }
  }

  // Returns a stack, given with its number, after the trip. A call may already have written the slice `output` to it.
  Tensor updated_stack(const std::pair<const int64_t, Tensor>& stack, const Tensor& output) {
    const PathScope path(loop_->path, PathScope::kAbsolute);
    const Tensor whole = as_stack_of(stack.second, output.dims());
    if (const auto of = views_.find(id_of(output)); of != views_.end() && of->second == stack.first) return whole;
    const Dims row = stacked(1, output.dims());
    return dynamic_update_slice(whole, reshape(copied_.at(id_of(output)), row), starts_in(whole));
  }

  // Returns the start of this trip's slice of `stack`.
  std::vector<Tensor> starts_in(const Tensor& stack) {
    std::vector<Tensor> out(static_cast<size_t>(stack.rank()), full(0, {DType::kI32, {}}));
    out[0] = copied_.at(id_of(from_.inputs[0]));
    return out;
  }

  // Operand `xs` of the loop is a stack. Returns it as an input of the body.
  Tensor stack_of_operand(int64_t xs) {
    Tensor& stack = operand_stacks_[xs];
    if (!stack) {
      const Tensor operand = loop_->operands[xs];
      stack = to_->parameter(operand.shape());
      loop_->operands.push_back(operand);
    }
    return stack;
  }

  // Returns `stack` reshaped so that its slices have the dims `slice`.
  static Tensor as_stack_of(const Tensor& stack, const Dims& slice) {
    const Dims dims = stacked(stack.dim(0), slice);
    return dims == stack.dims() ? stack : reshape(stack, dims);
  }

  const Block& from_;
  std::shared_ptr<Block> to_;
  bool carries_stacks_ = false;         // the loop's stacked results become carries
  Node* loop_ = nullptr;                // the loop whose body is copied; null for the outermost block
  std::map<ValueId, int64_t> slices_;   // values of the body that a call reads in place (readable_slices)
  std::map<ValueId, int64_t> written_;  // values of the body that a call writes in place (writable_slices)
  std::map<ValueId, int64_t> views_;    // those of written_ that are written already, and their views
  std::map<int64_t, Tensor> stacked_;   // stacks that became carries, by the number of the loop's result
  // Whole stacks that became inputs of the body, by the number of the loop's operand.
  std::map<int64_t, Tensor> operand_stacks_;
  std::map<ValueId, Tensor> copied_;  // the copy of each value
};

}  // namespace

std::shared_ptr<Block> use_slices_in_place(const Block& block) {
  return Copy(block).whole();
}

}  // namespace fettle
