#include "graph/prune.h"

#include <map>

#include "graph/op_table.h"

namespace fettle {
namespace {

using LiveFlags = std::vector<std::vector<bool>>;  // [node][result]

struct ScanNeeds {
  std::vector<bool> outputs;   // of the body
  std::vector<bool> operands;  // of the node = inputs of the body after the index
  LiveFlags live;              // values of the body
};

LiveFlags live_values(const Block& block, const std::vector<bool>& outputs);

// What the body of a scan must keep when `results` of the node are read: a carry that is read inside must be computed
// too.
ScanNeeds scan_needs(const Node& node, std::vector<bool> results) {
  const Block& body = *node.attributes.body;
  if (node.attributes.limited) results[0] = true;
  while (true) {
    LiveFlags live = live_values(body, results);
    bool changed = false;
    for (int64_t c = 0; c < node.attributes.carries; ++c) {
      const Tensor& input = body.inputs[1 + c];
      if (live[input.node()][input.result()] && !results[c]) results[c] = changed = true;
    }
    if (changed) continue;
    std::vector<bool> operands;
    for (size_t i = 1; i < body.inputs.size(); ++i)
      operands.push_back(live[body.inputs[i].node()][body.inputs[i].result()]);
    for (int64_t c = 0; c < node.attributes.carries; ++c) operands[c] = operands[c] || results[c];
    return {results, operands, std::move(live)};
  }
}

LiveFlags live_values(const Block& block, const std::vector<bool>& outputs) {
  LiveFlags live(block.size());
  for (int32_t id = 0; id < block.size(); ++id) live[id].resize(block.node(id).results.size());
  for (size_t i = 0; i < block.outputs.size(); ++i)
    if (outputs[i]) live[block.outputs[i].node()][block.outputs[i].result()] = true;
  for (int32_t id = block.size() - 1; id >= 0; --id) {
    const Node& node = block.node(id);
    bool any = false;
    for (bool result : live[id]) any = any || result;
    if (!any) continue;
    std::vector<bool> needed(node.operands.size(), true);
    if (node.op == Op::kScan) needed = scan_needs(node, live[id]).operands;
    if (node.op == Op::kCustomGradient || node.op == Op::kFloat8Dot || node.op == Op::kPlace)
      needed.assign(node.operands.size(), false), needed[0] = true;
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (needed[i]) live[node.operands[i].node()][node.operands[i].result()] = true;
  }
  return live;
}

class Pruner {
 public:
  Pruner(const Block& from, const LiveFlags& live) : from_(from), live_(live), to_(std::make_shared<Block>()) {}

  Tensor map(const Tensor& t) const { return map_.at({t.node(), t.result()}); }

  void add_input(const Tensor& input) { map_[{input.node(), input.result()}] = to_->parameter(input.shape()); }

  std::shared_ptr<Block> run(const std::vector<bool>& outputs) {
    for (int32_t id = 0; id < from_.size(); ++id) {
      const Node& node = from_.node(id);
      bool any = false;
      for (bool result : live_[id]) any = any || result;
      if (!any || node.op == Op::kParameter) continue;
      if (node.op == Op::kScan) {
        add_scan(id);
      } else if (node.op == Op::kCustomGradient || node.op == Op::kStopGradient || node.op == Op::kFloat8Dot) {
        map_[{id, 0}] = map(node.operands[0]);
      } else {
        Node copy = node;
        if (node.op == Op::kPlace) copy.operands.resize(1);
        for (Tensor& operand : copy.operands) operand = map(operand);
        add(id, std::move(copy));
      }
    }
    for (size_t i = 0; i < from_.outputs.size(); ++i)
      if (outputs[i]) to_->outputs.push_back(map(from_.outputs[i]));
    return to_;
  }

 private:
  Tensor add(int32_t id, Node copy) {
    const std::string path = copy.path;
    const size_t results = copy.results.size();
    const Tensor first = to_->append(std::move(copy));
    to_->node(first.node()).path = path;
    if (from_.node(id).op != Op::kScan)
      for (size_t r = 0; r < results; ++r)
        map_[{id, static_cast<int32_t>(r)}] = to_->tensor(first.node(), static_cast<int32_t>(r));
    return first;
  }

  void add_scan(int32_t id) {
    const Node& node = from_.node(id);
    const Block& body = *node.attributes.body;
    const ScanNeeds needs = scan_needs(node, live_[id]);
    Pruner inner(body, needs.live);
    inner.add_input(body.inputs[0]);
    Node copy{Op::kScan, {}, node.attributes, {}, node.path};
    copy.attributes.carries = copy.attributes.xs = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!needs.operands[i]) continue;
      inner.add_input(body.inputs[1 + i]);
      copy.operands.push_back(map(node.operands[i]));
      if (static_cast<int64_t>(i) < node.attributes.carries)
        ++copy.attributes.carries;
      else if (static_cast<int64_t>(i) < node.attributes.carries + node.attributes.xs)
        ++copy.attributes.xs;
    }
    for (size_t r = 0; r < needs.outputs.size(); ++r)
      if (needs.outputs[r]) copy.results.push_back(node.results[r]);
    copy.attributes.body = inner.run(needs.outputs);
    const Tensor first = add(id, std::move(copy));
    int32_t result = 0;
    for (size_t r = 0; r < needs.outputs.size(); ++r)
      if (needs.outputs[r]) map_[{id, static_cast<int32_t>(r)}] = to_->tensor(first.node(), result++);
  }

  const Block& from_;
  const LiveFlags& live_;
  std::shared_ptr<Block> to_;
  std::map<std::pair<int32_t, int32_t>, Tensor> map_;
};

}  // namespace

std::shared_ptr<Block> prune(const Block& block) {
  const std::vector<bool> all(block.outputs.size(), true);
  const LiveFlags live = live_values(block, all);
  Pruner pruner(block, live);
  for (const Tensor& input : block.inputs) pruner.add_input(input);
  return pruner.run(all);
}

}  // namespace fettle
