#include "graph/custom_call.h"

#include "base/error.h"
#include "graph/composite.h"
#include "graph/op_table.h"

namespace fettle {

Shape shard_of(const Shape& shape, const Partition& partition, const MeshAxes& mesh) {
  Shape out = shape;
  internal_check(partition.dims.size() <= out.dims.size(),
                 "[custom_call_i4] a partition of {} entries has more entries than {} has dims", partition.dims.size(),
                 shape.to_string());
  for (size_t d = 0; d < partition.dims.size(); ++d)
    for (const std::string& axis : partition.dims[d]) {
      const int64_t size = mesh.size_of(axis);
      internal_check(out.dims[d] % size == 0,
                     "[custom_call_i4] dim {} of {} is not divisible by the {} devices of mesh axis {}", d,
                     shape.to_string(), size, axis);
      out.dims[d] /= size;
    }
  return out;
}

std::vector<Tensor> custom_call(const CustomCall& call, const std::vector<Tensor>& operands) {
  auto shared = std::make_shared<CustomCall>(call);
  if (call.in.empty()) shared->in.resize(operands.size());
  if (call.out.empty()) shared->out.resize(call.results.size());
  for (const Tensor& operand : operands)
    internal_check(static_cast<bool>(operand), "[custom_call_i1] an operand of {} is null (at {})", call.target,
                   PathScope::path());
  const Tensor first = make_node(Op::kCustomCall, operands, std::shared_ptr<const CustomCall>(shared));
  const MeshAxes& mesh = Block::current().lowering().mesh;
  for (size_t i = 0; i < operands.size(); ++i) shard_of(operands[i].shape(), shared->in[i], mesh);
  for (size_t i = 0; i < call.results.size(); ++i) shard_of(call.results[i], shared->out[i], mesh);
  return all_results(first);
}

}  // namespace fettle
