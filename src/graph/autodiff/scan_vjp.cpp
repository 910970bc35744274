// Builds the reverse loop of a scan. Vocabulary: the scan node N has the forward body F. The reverse body G begins with
// a copy of F ("the copy") and continues with the VJPs of the copy's nodes. The values of F that the policy saves
// become additional stacked results of N. G reads these results instead of the copied nodes. Pruning then removes the
// nodes of the copy that nothing reads.
#include "graph/autodiff/scan_vjp.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/print.h"
#include "graph/scan.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

bool is_saved(const Node& node, Remat remat) {
  const Saved saved = op_row(node.op).saved.value(node);
  return saved == Saved::kAsProduct ? remat != Remat::kFull : saved == Saved::kAsValue && remat == Remat::kNone;
}

class ReverseLoop {
 public:
  explicit ReverseLoop(const VjpArgs& args)
      : args_(args), outer_(args.block), at_(args.get<Loop>()), forward_(*at_.body) {}

  Tensors build() {
    activity_ = scan_activity(outer_.node(args_.id), args_.active);
    for (int64_t i = carries() + at_.xs; i < operands(); ++i)
      internal_check(at_.axis.empty() || !activity_.operands[i],
                     "a scan over the devices of mesh axis {} cannot capture a value that needs a gradient", at_.axis);
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
    if (at_.limited) limit_ = body_->placeholder({DType::kI32, {}});
    for (int64_t c = 0; c < carries(); ++c)
      if (activity_.operands[c]) carry_cts_[c] = body_->placeholder(args_.operands[c].shape());
    // Gradients of captured values are summed over the trips in f32, whatever the value's dtype.
    for (int64_t i = carries() + at_.xs; i < operands(); ++i)
      if (activity_.operands[i]) const_sums_[i] = body_->placeholder(args_.operands[i].shape().with_dtype(DType::kF32));
    for (size_t r = carries(); r < args_.cotangents.size(); ++r)
      if (args_.cotangents[r] && activity_.results[r]) y_cts_[r] = body_->placeholder(forward_.outputs[r].shape());
  }

  void copy_forward() {
    copy_[id_of(forward_.inputs[0])] = index_;
    for (int64_t i = 0; i < operands(); ++i) {
      const Tensor& input = forward_.inputs[1 + i];
      copy_[id_of(input)] = is_const(i) ? body_->use(args_.operands[i]) : body_->placeholder(input.shape());
    }
    for (int32_t id = 0; id < forward_.size(); ++id) {
      Node node = forward_.node(id);
      if (node.op == Op::kParameter) continue;
      for (Tensor& operand : node.operands) operand = copy_.at(id_of(operand));
      const std::string path = node.path;
      const Tensor first = body_->append(std::move(node));
      body_->node(first.node()).path = path;
      origin_[first.node()] = id;
      for (size_t r = 0; r < forward_.node(id).results.size(); ++r)
        copy_[{id, static_cast<int32_t>(r)}] = body_->tensor(first.node(), static_cast<int32_t>(r));
    }
    copy_end_ = body_->size();
  }

  Tensor copy_of_input(int64_t operand) const { return copy_.at(id_of(forward_.inputs[1 + operand])); }

  void backpropagate() {
    Tensors outputs, cts, wrt;
    std::vector<int64_t> wrt_operand;
    for (const auto& [c, ct] : carry_cts_) {
      outputs.push_back(copy_.at(id_of(forward_.outputs[c])));
      cts.push_back(ct);
    }
    for (const auto& [r, ct] : y_cts_) {
      outputs.push_back(copy_.at(id_of(forward_.outputs[r])));
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

  // Returns sum + grad in f32.
  Tensor add_up(const Tensor& sum, const Tensor& grad) {
    const Tensor exact = before_rounding(grad);
    const Accumulate accumulate = op_row(body_->node(exact.node()).op).accumulate;
    return accumulate != nullptr ? accumulate(sum, exact) : sum + convert(exact, DType::kF32);
  }

  // Returns the values of the copy that depend on the carries. The other values depend only on the slices (for example,
  // weights converted to another dtype). If such a value were saved in every trip, the whole stack would be stored a
  // second time. So a value that does not depend on the carries is saved only if Remat::kDots saves it (a matrix
  // product, for example). Unlike OpRow::activity, this function also returns values of integer dtypes. If one
  // operand of an inner loop depends on a carry, all results of that inner loop are returned.
  std::set<ValueId> made_of_carries() const {
    std::set<ValueId> out;
    for (int64_t c = 0; c < carries(); ++c) out.insert(id_of(copy_of_input(c)));
    for (int32_t id = 0; id < copy_end_; ++id) {
      const Node& node = body_->node(id);
      auto depends = [&](const Tensor& operand) { return out.contains(id_of(operand)); };
      const bool any = std::ranges::any_of(node.operands, depends);
      for (int32_t r = 0; r < static_cast<int32_t>(node.results.size()); ++r)
        if (op_row(node.op).apart ? depends(node.operands[r]) : any) out.insert({id, r});
    }
    return out;
  }

  // Walks back from the outputs through the nodes after the copy. Each value of the copy that these nodes read becomes
  // an input of the loop, is saved, or is computed again from its own operands.
  void choose_saved() {
    const std::set<ValueId> carried = made_of_carries();
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
        needed_inputs_.insert(id_of(t));
      } else if (t.node() < copy_end_ && is_saved(node, at_.remat) &&
                 (carried.contains(id_of(t)) || is_saved(node, Remat::kDots))) {
        saved_.insert(id_of(t));
      } else {
        visit_operands(t.node());
      }
    }
    for (const ValueId& value : saved_) {
      const Tensor source = body_->tensor(value.first, value.second);
      replacement_[value] = body_->placeholder(source.shape());
    }
    auto replace = [this](Tensor& t) {
      if (const auto at = replacement_.find(id_of(t)); at != replacement_.end()) t = at->second;
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
    for (const ValueId& value : saved_) {
      const int32_t id = origin_.at(value.first);
      // Differentiating the copy may have added results to an inner scan.
      if (forward->node(id).op == Op::kScan) {
        forward->node(id).attributes = body_->node(value.first).attributes;
        forward->node(id).results = body_->node(value.first).results;
      }
      residuals_.emplace_back(replacement_.at(value), add_forward_output(*forward, forward->tensor(id, value.second)));
    }
    for (int64_t c = 0; c < carries(); ++c)
      if (const Tensor input = copy_of_input(c); needed_inputs_.contains(id_of(input)))
        residuals_.emplace_back(input, add_forward_output(*forward, forward->inputs[1 + c]));
    Loop with_saved = at_;
    with_saved.body = forward;
    outer_.node(args_.id).attributes = std::move(with_saved);
  }

  Tensors append_scan() {
    Tensors inputs{index_}, operands;
    if (at_.limited) {
      inputs.push_back(limit_);
      operands.push_back(args_.operands[0]);
    }
    for (const auto& [c, ct] : carry_cts_) {
      inputs.push_back(ct);
      const Tensor& seed = args_.cotangents[c];
      operands.push_back(seed ? seed : zeros_like(args_.operands[c]));
    }
    for (const auto& [i, sum] : const_sums_) {
      inputs.push_back(sum);
      operands.push_back(full(0, sum.shape()));
    }
    const auto carried = static_cast<int64_t>(operands.size());
    for (const auto& [input, result] : residuals_) {
      inputs.push_back(input);
      operands.push_back(outer_.tensor(args_.id, result));
    }
    for (int64_t i = carries(); i < carries() + at_.xs; ++i)
      if (const Tensor input = copy_of_input(i); needed_inputs_.contains(id_of(input))) {
        inputs.push_back(input);
        operands.push_back(args_.operands[i]);
      }
    for (const auto& [r, ct] : y_cts_) {
      inputs.push_back(ct);
      operands.push_back(args_.cotangents[r]);
    }
    const int64_t sliced = static_cast<int64_t>(operands.size()) - carried;
    for (const auto& [from, to] : body_->captured) {
      inputs.push_back(to);
      operands.push_back(from);
    }
    body_->inputs = inputs;
    if (at_.trips == 1) keep_apart(operands, carried + sliced);
    const Tensor first = make_node(Op::kScan, operands,
                                   Loop{.body = body_,
                                        .trips = at_.trips,
                                        .carries = carried,
                                        .xs = sliced,
                                        .first = at_.first,
                                        .reverse = !at_.reverse,
                                        .limited = at_.limited,
                                        .axis = at_.axis});

    Tensors grads(args_.operands.size());
    int32_t result = at_.limited ? 1 : 0;
    for (const auto& [c, ct] : carry_cts_) grads[c] = outer_.tensor(first.node(), result++);
    for (const auto& [i, sum] : const_grads_)
      grads[i] = convert(outer_.tensor(first.node(), result++), args_.operands[i].dtype());
    for (const auto& [i, grad] : x_grads_) grads[i] = whole_gradient(outer_.tensor(first.node(), result++), i);
    return grads;
  }

  // Puts the first `count` operands behind a barrier. Compilers inline a loop of one trip. Without the barrier they
  // find that the reverse body computes the same values as the forward body, and keep the forward body's values instead
  // of computing them again. Also, the barrier lets the reverse body begin only when its cotangents are known.
  void keep_apart(Tensors& operands, int64_t count) const {
    Tensors apart;
    std::vector<Tensor*> places;
    for (int64_t i = 0; i < count; ++i) {
      // A barrier copies the operand. Two kinds of operand are too large to copy, so they get no barrier: values in
      // host memory, and stacks from which each trip reads only one slice.
      const Tensor& input = body_->inputs[static_cast<size_t>(i) + 1];
      const bool stack = operands[i].rank() == input.rank() + 1 && operands[i].dim(0) != 1;
      if (stack || is_read_late(*body_, input.node())) continue;
      apart.push_back(operands[i]);
      places.push_back(&operands[i]);
    }
    if (apart.empty()) return;
    apart = optimization_barrier(apart);
    for (size_t i = 0; i < apart.size(); ++i) *places[i] = apart[i];
  }

  // Returns the gradient of the whole operand `i`. `read` is the gradient of the slices that the loop reads; the
  // gradient of the other slices is zero.
  Tensor whole_gradient(const Tensor& read, int64_t i) const {
    const int64_t slices = args_.operands[i].dim(0);
    if (slices == at_.trips) return read;
    Dims low(read.rank(), 0), high = low;
    low[0] = at_.first;
    high[0] = slices - at_.first - at_.trips;
    return pad(read, low, high);
  }

  const VjpArgs& args_;
  Block& outer_;
  const Loop at_;  // N's attributes before further results are added to N
  const Block& forward_;
  ScanActivity activity_;
  std::shared_ptr<Block> body_;  // the reverse body G
  Tensor index_, limit_;
  std::map<int64_t, Tensor> carry_cts_, const_sums_, x_grads_, const_grads_;  // by number of N's operand
  std::map<int64_t, Tensor> y_cts_;                                           // by number of N's result
  std::map<ValueId, Tensor> copy_;                                            // the copy in G of each value of F
  std::map<int32_t, int32_t> origin_;  // maps a node of the copy to the node of F that it copies
  int32_t copy_end_ = 0;
  std::set<ValueId> needed_inputs_, saved_;  // values of G
  std::map<ValueId, Tensor> replacement_;    // maps a saved value of the copy to the input of G that replaces it
  // An input of G, and the number of the result of N that this input gets.
  std::vector<std::pair<Tensor, int32_t>> residuals_;
};

}  // namespace

std::vector<Tensor> scan_vjp(const VjpArgs& args) {
  return ReverseLoop(args).build();
}

}  // namespace fettle
