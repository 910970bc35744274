#include "graph/autodiff/grad.h"

#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

using ActiveFlags = std::vector<std::vector<bool>>;  // [node][result]

bool any(const std::vector<bool>& flags) {
  for (bool flag : flags)
    if (flag) return true;
  return false;
}

// Returns sum + ct. If ct is the rounded result of an op that can add to a sum (the gradient of a table's rows), the
// sum is rounded instead, and there is no second table.
Tensor add(const Tensor& sum, const Tensor& ct) {
  const Tensor exact = before_rounding(ct);
  const Accumulate accumulate = op_row(Block::current().node(exact.node()).op).accumulate;
  if (exact.dtype() == ct.dtype() || accumulate == nullptr) return sum + ct;
  return convert(accumulate(convert(before_rounding(sum), DType::kF32), exact), ct.dtype());
}

std::vector<bool> operand_flags(const Node& node, const ActiveFlags& active) {
  std::vector<bool> out;
  for (const Tensor& operand : node.operands) out.push_back(active[operand.node()][operand.result()]);
  return out;
}

// Returns a flag for each value of `block`: true if the value depends on `seeds` through differentiable ops. Looks only
// at the nodes before node `limit`.
ActiveFlags propagate(const Block& block, int32_t limit, const std::vector<Tensor>& seeds) {
  ActiveFlags active(block.size());
  for (int32_t id = 0; id < block.size(); ++id) active[id].resize(block.node(id).results.size());
  for (const Tensor& seed : seeds) active[seed.node()][seed.result()] = true;
  for (int32_t id = 0; id < limit; ++id) {
    const Node& node = block.node(id);
    if (op_row(node.op).vjp == nullptr) continue;
    const std::vector<bool> operands = operand_flags(node, active);
    if (!any(operands)) continue;
    const OpRow& row = op_row(node.op);
    const std::vector<bool> results = row.apart                 ? operands
                                      : row.activity != nullptr ? row.activity(node, operands)
                                                                : std::vector<bool>(node.results.size(), true);
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r] && is_float(node.results[r].dtype)) active[id][r] = true;
  }
  return active;
}

}  // namespace

Tensor before_rounding(const Tensor& x) {
  const Node& node = Block::current().node(x.node());
  const bool rounded = node.op == Op::kConvert && node.operands[0].dtype() == DType::kF32 &&
                       byte_size(x.dtype()) < byte_size(DType::kF32);
  return rounded ? node.operands[0] : x;
}

ScanActivity scan_activity(const Node& scan, std::vector<bool> operands) {
  const auto& loop = scan.get<Loop>();
  const Block& body = *loop.body;
  while (true) {
    std::vector<Tensor> seeds;
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] && is_float(scan.operands[i].dtype())) seeds.push_back(body.inputs[1 + i]);
    const ActiveFlags active = propagate(body, body.size(), seeds);
    std::vector<bool> results;
    for (const Tensor& output : body.outputs) results.push_back(active[output.node()][output.result()]);
    bool changed = false;
    for (int64_t c = 0; c < loop.carries; ++c)
      if (results[c] && !operands[c]) operands[c] = changed = true;
    if (changed) continue;
    for (int64_t c = 0; c < loop.carries; ++c)
      if (operands[c] && is_float(scan.results[c].dtype)) results[c] = true;
    for (size_t i = 0; i < operands.size(); ++i) operands[i] = operands[i] && is_float(scan.operands[i].dtype());
    return {operands, results};
  }
}

std::vector<Tensor> backprop(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                             const std::vector<Tensor>& wrt) {
  Block& block = Block::current();
  std::vector<Tensor> seeds;
  for (const Tensor& t : wrt) seeds.push_back(block.use(t));
  const int32_t limit = block.size();
  const ActiveFlags active = propagate(block, limit, seeds);

  std::vector<std::vector<Tensor>> cts(limit);
  for (int32_t id = 0; id < limit; ++id) cts[id].resize(block.node(id).results.size());
  auto accumulate = [&](const Tensor& at, const Tensor& ct) {
    if (!ct || !active[at.node()][at.result()]) return;
    internal_check(ct.shape() == at.shape(), "the VJP gave the cotangent {} for the value {} (at {})",
                   ct.shape().to_string(), at.shape().to_string(), PathScope::path());
    Tensor& sum = cts[at.node()][at.result()];
    sum = sum ? add(sum, ct) : ct;
  };
  for (size_t i = 0; i < outputs.size(); ++i) accumulate(outputs[i], cotangents[i]);

  for (int32_t id = limit - 1; id >= 0; --id) {
    const Node& node = block.node(id);
    if (op_row(node.op).vjp == nullptr) continue;
    bool reached = false;
    for (const Tensor& ct : cts[id]) reached = reached || ct;
    const std::vector<bool> operands = operand_flags(node, active);
    if (!reached || !any(operands)) continue;
    PathScope scope(node.path.starts_with("grad/") ? node.path : "grad/" + node.path, PathScope::kAbsolute);
    VjpArgs args{block, id, node.operands, {}, cts[id], operands};
    for (size_t r = 0; r < cts[id].size(); ++r) args.results.push_back(block.tensor(id, static_cast<int32_t>(r)));
    const std::vector<Tensor> grads = op_row(node.op).vjp(args);
    internal_check(grads.size() == args.operands.size(), "the VJP of {} returned {} cotangents for {} operands",
                   op_row(node.op).name, grads.size(), args.operands.size());
    for (size_t i = 0; i < grads.size(); ++i) accumulate(args.operands[i], grads[i]);
  }

  std::vector<Tensor> out;
  for (const Tensor& seed : seeds) out.push_back(seed.node() < limit ? cts[seed.node()][seed.result()] : Tensor{});
  return out;
}

std::vector<Tensor> grad(const Tensor& y, const std::vector<Tensor>& wrt) {
  internal_check(y.rank() == 0 && is_float(y.dtype()), "grad() of a value of shape {}, wanted a float scalar",
                 y.shape().to_string());
  const Tensor root = Block::current().use(y);
  std::vector<Tensor> grads = backprop({root}, {constant(1, root.dtype())}, wrt);
  for (size_t i = 0; i < grads.size(); ++i)
    if (!grads[i]) grads[i] = zeros_like(Block::current().use(wrt[i]));
  return grads;
}

}  // namespace fettle
