#include "graph/scan.h"

#include "base/error.h"
#include "graph/op_table.h"

namespace fettle {

namespace {

bool is_readable(int64_t slices, int64_t trips, int64_t first) {
  return slices == trips || slices >= first + trips;
}

ScanStep build_scan(int64_t trips, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs,
                    const ScanBody& body, const ScanOptions& options, bool limited) {
  Block& outer = Block::current();
  auto inner = std::make_shared<Block>(&outer);
  ScanStep step;
  {
    BuildScope scope(*inner);
    const Tensor index = inner->parameter({DType::kI32, {}});
    std::vector<Tensor> inner_carries, inner_xs;
    for (const Tensor& carry : carries) inner_carries.push_back(inner->parameter(carry.shape()));
    for (const Tensor& x : xs) {
      internal_check(x.rank() > 0 && is_readable(x.dims()[0], trips, options.first),
                     "[while_i1] a scan of {} trips from slice {} cannot read slices of the operand {}", trips,
                     options.first, x.shape().to_string());
      inner_xs.push_back(inner->parameter({x.dtype(), Dims(x.dims().begin() + 1, x.dims().end())}));
    }
    step = body(index, inner_carries, inner_xs);
    internal_check(step.carries.size() == carries.size(), "[while_c2] the body returned {} carries, but took {}",
                   step.carries.size(), carries.size());
    for (const Tensor& carry : step.carries) inner->outputs.push_back(inner->use(carry));
    for (const Tensor& y : step.ys) inner->outputs.push_back(inner->use(y));
  }
  std::vector<Tensor> operands;
  for (const Tensor& carry : carries) operands.push_back(outer.use(carry));
  for (const Tensor& x : xs) operands.push_back(outer.use(x));
  for (const auto& [from, to] : inner->captured) operands.push_back(from);
  const std::vector<Tensor> results = all_results(make_node(Op::kScan, operands,
                                                            Loop{.body = std::move(inner),
                                                                 .trips = trips,
                                                                 .carries = static_cast<int64_t>(carries.size()),
                                                                 .xs = static_cast<int64_t>(xs.size()),
                                                                 .first = options.first,
                                                                 .reverse = options.reverse,
                                                                 .limited = limited,
                                                                 .remat = options.remat,
                                                                 .axis = options.axis}));
  const auto ys = results.begin() + static_cast<std::ptrdiff_t>(carries.size());
  return {{results.begin(), ys}, {ys, results.end()}};
}

// Builds a scan that visits only the first `options.limit` slices. The limit becomes the first carry of the loop.
ScanStep limited_scan(int64_t trips, std::vector<Tensor> carries, const std::vector<Tensor>& xs, const ScanBody& body,
                      const ScanOptions& options) {
  carries.insert(carries.begin(), options.limit);
  const ScanBody with_limit = [&](const Tensor& index, const std::vector<Tensor>& carried,
                                  const std::vector<Tensor>& slices) -> ScanStep {
    ScanStep step = body(index, {carried.begin() + 1, carried.end()}, slices);
    step.carries.insert(step.carries.begin(), carried[0]);
    return step;
  };
  ScanStep out = build_scan(trips, carries, xs, with_limit, options, true);
  out.carries.erase(out.carries.begin());
  return out;
}

}  // namespace

ScanStep scan(int64_t trips, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs, const ScanBody& body,
              ScanOptions options) {
  internal_check(options.axis.empty() || (carries.empty() && options.first == 0 && !options.limit),
                 "a scan over the devices of mesh axis {} cannot have carries, a first slice or a limit", options.axis);
  if (options.limit) return limited_scan(trips, carries, xs, body, options);
  return build_scan(trips, carries, xs, body, options, false);
}

std::shared_ptr<Block> clone(const Block& block) {
  auto copy = std::make_shared<Block>(block.parent());
  auto moved = [&copy](const Tensor& t) { return copy->tensor(t.node(), t.result()); };
  for (int32_t id = 0; id < block.size(); ++id) {
    Node node = block.node(id);
    for (Tensor& operand : node.operands) operand = moved(operand);
    const std::string path = node.path;
    copy->append(std::move(node));
    copy->node(id).path = path;
  }
  for (const Tensor& input : block.inputs) copy->inputs.push_back(moved(input));
  for (const Tensor& output : block.outputs) copy->outputs.push_back(moved(output));
  for (const auto& [outer, inner] : block.captured) copy->captured.emplace_back(outer, moved(inner));
  return copy;
}

}  // namespace fettle
