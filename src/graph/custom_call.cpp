#include "graph/custom_call.h"

#include "base/error.h"
#include "graph/composite.h"
#include "graph/op_table.h"

namespace fettle {

Shape shard_of(const Shape& shape, const Partition& partition, const MeshAxes& mesh) {
  Shape out = shape;
  internal_check(partition.dims.size() <= out.dims.size(), "[custom_call_i4] {} entries to split {}",
                 partition.dims.size(), shape.to_string());
  for (size_t d = 0; d < partition.dims.size(); ++d)
    for (const std::string& axis : partition.dims[d]) {
      const int64_t size = mesh.size_of(axis);
      internal_check(out.dims[d] % size == 0, "[custom_call_i4] dim {} of {} does not divide by the {} devices of {}",
                     d, shape.to_string(), size, axis);
      out.dims[d] /= size;
    }
  return out;
}

std::vector<Tensor> custom_call(const CustomCall& call, const std::vector<Tensor>& operands) {
  Block& block = Block::current();
  const std::string at = fmt::format("{} (at {})", call.kernel.empty() ? call.target : call.kernel, PathScope::path());
  internal_check(!call.target.empty(), "[custom_call_i2] no target in {}", at);
  internal_check(call.in.empty() || call.in.size() == operands.size(),
                 "[custom_call_i3] {} operands, {} partitions in {}", operands.size(), call.in.size(), at);
  internal_check(call.out.empty() || call.out.size() == call.results.size(),
                 "[custom_call_i3] {} results, {} partitions in {}", call.results.size(), call.out.size(), at);
  auto shared = std::make_shared<CustomCall>(call);
  shared->in.resize(operands.size());
  shared->out.resize(call.results.size());
  const MeshAxes& mesh = block.lowering().mesh;
  Node node{Op::kCustomCall, {}, {}, call.results, {}};
  for (size_t i = 0; i < operands.size(); ++i) {
    internal_check(static_cast<bool>(operands[i]), "[custom_call_i1] operand {} is null in {}", i, at);
    node.operands.push_back(block.use(operands[i]));
    shard_of(operands[i].shape(), shared->in[i], mesh);
  }
  for (size_t i = 0; i < call.results.size(); ++i) shard_of(call.results[i], shared->out[i], mesh);
  node.attributes.call = std::move(shared);
  const Tensor first = block.append(std::move(node));
  std::vector<Tensor> out;
  for (size_t i = 0; i < call.results.size(); ++i) out.push_back(block.tensor(first.node(), static_cast<int32_t>(i)));
  return out;
}

}  // namespace fettle
