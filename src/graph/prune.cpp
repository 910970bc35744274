#include "graph/prune.h"

#include <algorithm>
#include <map>

#include "graph/op_table.h"
#include "graph/print.h"

namespace fettle {
namespace {

bool any_live(const std::vector<bool>& flags) {
  return std::ranges::find(flags, true) != flags.end();
}

}  // namespace

LiveValues live_values(const Block& block, const std::vector<bool>& outputs) {
  LiveValues live(block.size());
  for (int32_t id = 0; id < block.size(); ++id) live[id].resize(block.node(id).results.size());
  for (size_t i = 0; i < block.outputs.size(); ++i)
    if (outputs[i]) live[block.outputs[i].node()][block.outputs[i].result()] = true;
  for (int32_t id = block.size() - 1; id >= 0; --id) {
    const Node& node = block.node(id);
    if (!any_live(live[id])) continue;
    const std::vector<bool> needed = op_row(node.op).needs(node, live[id]);
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (needed[i]) live[node.operands[i].node()][node.operands[i].result()] = true;
  }
  return live;
}

std::shared_ptr<Block> copy_live(const Block& block, const LiveValues& live, const std::vector<bool>& inputs,
                                 const std::vector<bool>& outputs) {
  auto copy = std::make_shared<Block>();
  std::map<ValueId, Tensor> copied;
  auto copy_of = [&](const Tensor& t) { return copied.at(id_of(t)); };
  for (size_t i = 0; i < block.inputs.size(); ++i)
    if (inputs[i]) copied[id_of(block.inputs[i])] = copy->parameter(block.inputs[i].shape());
  for (int32_t id = 0; id < block.size(); ++id) {
    const Node& node = block.node(id);
    const OpRow& row = op_row(node.op);
    if (!any_live(live[id]) || node.op == Op::kParameter) continue;
    if (row.spell == nullptr) {
      copied[{id, 0}] = copy_of(node.operands[0]);
      continue;
    }
    Node kept{node.op, {}, {}, {}, node.path};
    Shrunk shrunk = row.shrink != nullptr ? row.shrink(node, live[id])
                                          : Shrunk{row.needs(node, live[id]),
                                                   std::vector<bool>(node.results.size(), true), node.attributes};
    kept.attributes = std::move(shrunk.attributes);
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (shrunk.operands[i]) kept.operands.push_back(copy_of(node.operands[i]));
    std::vector<ValueId> results;
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (!shrunk.results[r]) continue;
      kept.results.push_back(node.results[r]);
      results.emplace_back(id, static_cast<int32_t>(r));
    }
    const Tensor first = copy->append(std::move(kept));
    copy->node(first.node()).path = node.path;
    for (size_t r = 0; r < results.size(); ++r)
      copied[results[r]] = copy->tensor(first.node(), static_cast<int32_t>(r));
  }
  for (size_t i = 0; i < block.outputs.size(); ++i)
    if (outputs[i]) copy->outputs.push_back(copy_of(block.outputs[i]));
  return copy;
}

std::shared_ptr<Block> prune(const Block& block) {
  const std::vector<bool> outputs(block.outputs.size(), true);
  return copy_live(block, live_values(block, outputs), std::vector<bool>(block.inputs.size(), true), outputs);
}

}  // namespace fettle
