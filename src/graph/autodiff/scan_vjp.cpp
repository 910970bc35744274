// The reverse loop of a scan. Vocabulary: the forward body F of the scan node N; the reverse body G, which begins with
// a copy of F ("the copy"), goes on with the VJPs of its nodes, and reads what the policy saved of F instead of
// computing it again. What is saved becomes further stacked results of N. Nodes of the copy that nothing reads any more
// are pruned.
#include <map>
#include <set>

#include "base/error.h"
#include "graph/autodiff/grad.h"
#include "graph/autodiff/vjps.h"
#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle::vjps {
namespace {

using Value = std::pair<int32_t, int32_t>;  // node, result

Value value_of(const Tensor& t) {
  return {t.node(), t.result()};
}

// A parameter node that is not yet in the block's list of inputs.
Tensor placeholder(Block& block, const Shape& shape) {
  return block.append({Op::kParameter, {}, {}, {shape}, {}});
}

bool is_saved(const Node& node, Remat remat) {
  switch (node.op) {
    case Op::kParameter:
    case Op::kConstant:
    case Op::kIota: return false;
    case Op::kBroadcastInDim:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kStopGradient:
    case Op::kShardingConstraint:
    case Op::kPlace: return false;  // what the host keeps is fetched again
    case Op::kDotGeneral:
    case Op::kScan:
    case Op::kCustomCall: return remat != Remat::kFull;
    default: return remat == Remat::kNone;
  }
}

class ReverseLoop {
 public:
  explicit ReverseLoop(const VjpArgs& args)
      : args_(args), outer_(args.block), forward_(*args.attributes().body), at_(args.attributes()) {}

  Tensors build() {
    activity_ = scan_activity(outer_.node(args_.id), args_.active);
    body_ = std::make_shared<Block>(&outer_);
    {
      BuildScope scope(*body_);
      declare_inputs();
      copy_forward();
      backpropagate();
    }
    choose_saved();
    save_in_forward();
    return append_scan();
  }

 private:
  int64_t carries() const { return at_.carries; }
  int64_t operands() const { return static_cast<int64_t>(args_.operands.size()); }
  bool is_const(int64_t operand) const { return operand >= at_.carries + at_.xs; }

  void declare_inputs() {
    index_ = body_->parameter({DType::kI32, {}});
    if (at_.limited) limit_ = placeholder(*body_, {DType::kI32, {}});
    for (int64_t c = 0; c < carries(); ++c)
      if (activity_.operands[c]) carry_cts_[c] = placeholder(*body_, args_.operands[c].shape());
    // Sums over trips are kept in f32 whatever the dtype of the captured value.
    for (int64_t i = carries() + at_.xs; i < operands(); ++i)
      if (activity_.operands[i])
        const_sums_[i] = placeholder(*body_, args_.operands[i].shape().with_dtype(DType::kF32));
    for (size_t r = carries(); r < args_.cotangents.size(); ++r)
      if (args_.cotangents[r] && activity_.results[r]) y_cts_[r] = placeholder(*body_, forward_.outputs[r].shape());
  }

  void copy_forward() {
    copy_[value_of(forward_.inputs[0])] = index_;
    for (int64_t i = 0; i < operands(); ++i) {
      const Tensor& input = forward_.inputs[1 + i];
      copy_[value_of(input)] = is_const(i) ? body_->use(args_.operands[i]) : placeholder(*body_, input.shape());
    }
    for (int32_t id = 0; id < forward_.size(); ++id) {
      Node node = forward_.node(id);
      if (node.op == Op::kParameter) continue;
      for (Tensor& operand : node.operands) operand = copy_.at(value_of(operand));
      const std::string path = node.path;
      const Tensor first = body_->append(std::move(node));
      body_->node(first.node()).path = path;
      origin_[first.node()] = id;
      for (size_t r = 0; r < forward_.node(id).results.size(); ++r)
        copy_[{id, static_cast<int32_t>(r)}] = body_->tensor(first.node(), static_cast<int32_t>(r));
    }
    copy_end_ = body_->size();
  }

  Tensor copy_of_input(int64_t operand) const { return copy_.at(value_of(forward_.inputs[1 + operand])); }

  void backpropagate() {
    Tensors outputs, cts, wrt;
    std::vector<int64_t> wrt_operand;
    for (const auto& [c, ct] : carry_cts_) {
      outputs.push_back(copy_.at(value_of(forward_.outputs[c])));
      cts.push_back(ct);
    }
    for (const auto& [r, ct] : y_cts_) {
      outputs.push_back(copy_.at(value_of(forward_.outputs[r])));
      cts.push_back(ct);
    }
    for (int64_t i = 0; i < operands(); ++i)
      if (activity_.operands[i]) {
        wrt.push_back(copy_of_input(i));
        wrt_operand.push_back(i);
      }
    const Tensors grads = backprop(outputs, cts, wrt);
    for (size_t k = 0; k < grads.size(); ++k) {
      const int64_t i = wrt_operand[k];
      if (i < carries())
        body_->outputs.push_back(grads[k] ? grads[k] : zeros_like(wrt[k]));
      else if (!is_const(i))
        x_grads_[i] = grads[k] ? grads[k] : zeros_like(wrt[k]);
      else
        const_grads_[i] = grads[k] ? add_up(const_sums_.at(i), grads[k]) : const_sums_.at(i);
    }
    if (at_.limited) body_->outputs.insert(body_->outputs.begin(), limit_);
    for (const auto& [i, sum] : const_grads_) body_->outputs.push_back(sum);
    for (const auto& [i, grad] : x_grads_) body_->outputs.push_back(grad);
  }

  // sum + grad in f32. What a `take` gives is added to its rows alone, so that a trip does not touch the whole table.
  Tensor add_up(const Tensor& sum, const Tensor& grad) {
    const Node& node = body_->node(grad.node());
    if (node.op != Op::kTakeTranspose || node.operands.size() != 2) return sum + fettle::convert(grad, DType::kF32);
    return make_node(Op::kTakeTranspose, {fettle::convert(node.operands[0], DType::kF32), node.operands[1], sum},
                     {.high = node.attributes.high});
  }

  // Nodes of the copy that depend on the carries. The others are made of the slices alone (weights in another dtype):
  // one of each trip would be as much as the whole stack again, so only their products are saved.
  std::set<int32_t> made_of_carries() const {
    std::set<int32_t> out;
    for (int64_t c = 0; c < carries(); ++c) out.insert(copy_of_input(c).node());
    for (int32_t id = 0; id < copy_end_; ++id)
      for (const Tensor& operand : body_->node(id).operands)
        if (out.contains(operand.node())) out.insert(id);
    return out;
  }

  // Walks back from the outputs: nodes after the copy are the reverse part; of the copy, what they read is either an
  // input of the loop, saved, or computed again from its own operands.
  void choose_saved() {
    const std::set<int32_t> carried = made_of_carries();
    std::set<int32_t> visited;
    Tensors stack = body_->outputs;
    auto visit_operands = [&](int32_t id) {
      if (!visited.insert(id).second) return;
      for (const Tensor& operand : body_->node(id).operands) stack.push_back(operand);
    };
    while (!stack.empty()) {
      const Tensor t = stack.back();
      stack.pop_back();
      const Node& node = body_->node(t.node());
      if (node.op == Op::kParameter) {
        needed_inputs_.insert(value_of(t));
      } else if (t.node() < copy_end_ && is_saved(node, at_.remat) &&
                 (carried.contains(t.node()) || is_saved(node, Remat::kDots))) {
        saved_.insert(value_of(t));
      } else {
        visit_operands(t.node());
      }
    }
    for (const Value& value : saved_) {
      const Tensor source = body_->tensor(value.first, value.second);
      replacement_[value] = placeholder(*body_, source.shape());
    }
    auto replace = [this](Tensor& t) {
      if (const auto at = replacement_.find(value_of(t)); at != replacement_.end()) t = at->second;
    };
    for (int32_t id = 0; id < body_->size(); ++id)
      for (Tensor& operand : body_->node(id).operands) replace(operand);
    for (Tensor& output : body_->outputs) replace(output);
  }

  int32_t add_forward_output(Block& forward, const Tensor& value) {
    forward.outputs.push_back(value);
    Dims dims = value.dims();
    dims.insert(dims.begin(), at_.trips);
    Node& node = outer_.node(args_.id);
    node.results.push_back({value.dtype(), dims});
    return static_cast<int32_t>(node.results.size()) - 1;
  }

  void save_in_forward() {
    const std::shared_ptr<Block> forward = clone(forward_);
    for (const Value& value : saved_) {
      const int32_t id = origin_.at(value.first);
      // A scan inside may have gained results of its own while the copy was differentiated.
      if (forward->node(id).op == Op::kScan) {
        forward->node(id).attributes = body_->node(value.first).attributes;
        forward->node(id).results = body_->node(value.first).results;
      }
      residuals_.emplace_back(replacement_.at(value), add_forward_output(*forward, forward->tensor(id, value.second)));
    }
    for (int64_t c = 0; c < carries(); ++c)
      if (const Tensor input = copy_of_input(c); needed_inputs_.contains(value_of(input)))
        residuals_.emplace_back(input, add_forward_output(*forward, forward->inputs[1 + c]));
    outer_.node(args_.id).attributes.body = forward;
  }

  Tensors append_scan() {
    Node node{Op::kScan, {}, {}, {}, {}};
    Tensors inputs{index_};
    if (at_.limited) {
      inputs.push_back(limit_);
      node.operands.push_back(args_.operands[0]);
    }
    for (const auto& [c, ct] : carry_cts_) {
      inputs.push_back(ct);
      const Tensor& seed = args_.cotangents[c];
      node.operands.push_back(seed ? seed : zeros_like(args_.operands[c]));
    }
    for (const auto& [i, sum] : const_sums_) {
      inputs.push_back(sum);
      node.operands.push_back(full(0, sum.shape()));
    }
    node.attributes.carries = static_cast<int64_t>(node.operands.size());
    for (const auto& [input, result] : residuals_) {
      inputs.push_back(input);
      node.operands.push_back(outer_.tensor(args_.id, result));
    }
    for (int64_t i = carries(); i < carries() + at_.xs; ++i)
      if (const Tensor input = copy_of_input(i); needed_inputs_.contains(value_of(input))) {
        inputs.push_back(input);
        node.operands.push_back(args_.operands[i]);
      }
    for (const auto& [r, ct] : y_cts_) {
      inputs.push_back(ct);
      node.operands.push_back(args_.cotangents[r]);
    }
    node.attributes.xs = static_cast<int64_t>(node.operands.size()) - node.attributes.carries;
    for (const auto& [from, to] : body_->captured) {
      inputs.push_back(to);
      node.operands.push_back(from);
    }
    body_->inputs = inputs;
    for (size_t r = 0; r < body_->outputs.size(); ++r) {
      Shape shape = body_->outputs[r].shape();
      if (static_cast<int64_t>(r) >= node.attributes.carries) shape.dims.insert(shape.dims.begin(), at_.trips);
      node.results.push_back(shape);
    }
    node.attributes.trips = at_.trips;
    node.attributes.reverse = !at_.reverse;
    node.attributes.limited = at_.limited;
    node.attributes.body = body_;
    const Tensor first = outer_.append(std::move(node));

    Tensors grads(args_.operands.size());
    int32_t result = at_.limited ? 1 : 0;
    for (const auto& [c, ct] : carry_cts_) grads[c] = outer_.tensor(first.node(), result++);
    for (const auto& [i, sum] : const_grads_)
      grads[i] = fettle::convert(outer_.tensor(first.node(), result++), args_.operands[i].dtype());
    for (const auto& [i, grad] : x_grads_) grads[i] = outer_.tensor(first.node(), result++);
    return grads;
  }

  const VjpArgs& args_;
  Block& outer_;
  const Block& forward_;
  const Attributes at_;  // of N before it gains results
  ScanActivity activity_;
  std::shared_ptr<Block> body_;  // G
  Tensor index_, limit_;
  std::map<int64_t, Tensor> carry_cts_, const_sums_, y_cts_;  // by operand, operand, result of N
  std::map<int64_t, Tensor> x_grads_, const_grads_;           // by operand of N
  std::map<Value, Tensor> copy_;                              // value of F -> its copy in G
  std::map<int32_t, int32_t> origin_;                         // node of the copy -> node of F
  int32_t copy_end_ = 0;
  std::set<Value> needed_inputs_, saved_;              // values of G
  std::map<Value, Tensor> replacement_;                // saved value of the copy -> G's input that stands for it
  std::vector<std::pair<Tensor, int32_t>> residuals_;  // G's input, result of N that feeds it
};

}  // namespace

Tensors scan(const VjpArgs& args) {
  return ReverseLoop(args).build();
}

}  // namespace fettle::vjps
