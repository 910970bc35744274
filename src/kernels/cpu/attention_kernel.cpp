#include "kernels/cpu/attention_kernel.h"

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

// The data that the calls for one composite share. The operands of the calls are q, k, v, segments, window (0: none)
// and slopes (0: none).
struct Site {
  Shape q, k;
  Partition split_q, split_k, split_segments;
  Partition split_sums;  // how log-sum-exp [B, N, T] is split
  NamedAttributes attributes;
  AttentionProblem shard;  // sizes of one device's shard; pointers are not set
  int64_t devices;         // number of devices that compute different shards
  int64_t flops;           // FLOPs of one forward pass over all devices

  std::vector<Partition> operand_splits() const {
    return {split_q, split_k, split_k, split_segments, {}, {{split_q.dims[2]}}};
  }
};

Partition whole(Partition split, size_t rank) {
  split.dims.resize(rank);
  return split;
}

std::optional<Site> read(const CompositeSite& site) {
  Site out;
  out.q = site.inputs[0];
  out.k = site.inputs[1];
  if (out.q.dtype != DType::kF32 && out.q.dtype != DType::kBF16) return std::nullopt;
  if (out.k.dtype != out.q.dtype || site.inputs[2] != out.k || out.k.dims[1] != out.q.dims[1]) return std::nullopt;
  out.split_q = whole(site.partitions[0], 4);
  out.split_k = whole(site.partitions[1], 4);
  out.split_segments = whole(site.partitions[3], 2);
  const auto& q = out.split_q.dims;
  if (!q[1].empty() || !q[3].empty() || out.split_k != out.split_q || whole(site.partitions[2], 4) != out.split_q ||
      out.split_segments.dims != std::vector{q[0], q[1]})
    return std::nullopt;
  out.split_sums.dims = {q[0], q[2], q[1]};
  const Shape q_shard = shard_of(out.q, out.split_q, site.mesh), k_shard = shard_of(out.k, out.split_k, site.mesh);
  if (q_shard.dims[2] % k_shard.dims[2] != 0) return std::nullopt;
  out.devices = out.q.elements() / q_shard.elements();
  const double scale = std::get<double>(site.attributes.at("scale"));
  const double softcap = std::get<double>(site.attributes.at("softcap"));
  const bool causal = std::get<bool>(site.attributes.at("causal"));
  out.attributes = {{"scale", static_cast<float>(scale)}, {"softcap", static_cast<float>(softcap)}, {"causal", causal}};
  out.shard = {.rows = q_shard.dims[0],
               .length = q_shard.dims[1],
               .heads = q_shard.dims[2],
               .key_heads = k_shard.dims[2],
               .width = q_shard.dims[3],
               .dtype = out.q.dtype,
               .causal = causal,
               .window = causal ? std::max<int64_t>(0, std::get<int64_t>(site.attributes.at("window"))) : 0};
  out.flops = out.devices * attention_flops(out.shard);
  return out;
}

// The call returns its scratch memory as a result that nothing reads. So the compiler allocates this memory and reuses
// it. The memory is counted among the compiler's temporaries, so CallCost states no workspace.
Shape scratch(int64_t bytes) {
  return {DType::kU8, {bytes}};
}

// Only o has a cotangent, because log-sum-exp is not a result of the composite.
Tensors gradient(const Site& site, const VjpArgs& args) {
  Tensors cotangents(args.operands.size());
  const Tensor& d_o = args.cotangents[0];
  if (!d_o) return cotangents;
  Tensors operands = args.operands;
  operands.insert(operands.end(), {args.results[0], args.results[1], d_o});
  std::vector<Partition> in = site.operand_splits();
  in.insert(in.end(), {site.split_q, site.split_sums, site.split_q});
  const int64_t workspace = attention_backward_workspace(site.shard);
  const int64_t bytes = 4 * (site.q.bytes() + site.k.bytes());
  const Tensors grads = custom_call({.kernel = kAttentionKernel,
                                     .target = kAttentionGradientTarget,
                                     .attributes = site.attributes,
                                     .results = {site.q, site.k, site.k, scratch(workspace)},
                                     .in = in,
                                     .out = {site.split_q, site.split_k, site.split_k, {}},
                                     .cost = {.flops = site.flops / 2 * 5, .bytes = bytes}},
                                    operands);
  for (size_t i = 0; i < 3; ++i) cotangents[i] = grads[i];
  return cotangents;
}

}  // namespace

bool attention_pays(const CompositeSite& site) {
  constexpr int64_t kShortest = 256;
  const Shape& q = site.inputs[0];
  return q.dims[1] >= kShortest && &block_ops(q.dtype) != usable_block_ops(q.dtype).front();
}

std::optional<Kernel> attention_kernel(const CompositeSite& composite) {
  const std::optional<Site> found = read(composite);
  if (!found) return std::nullopt;
  std::vector<double> slopes;
  for (const float slope : std::get<std::vector<float>>(composite.attributes.at("slopes"))) slopes.push_back(slope);
  slopes.resize(composite.inputs[0].dims[2], 0.0);
  return [site = *found, slopes](const Tensors& inputs) -> Tensors {
    Tensors operands(inputs.begin(), inputs.begin() + 4);
    operands.push_back(inputs.size() > 4 ? inputs[4] : constant(0, DType::kI32));
    operands.push_back(literal(slopes, {DType::kF32, {static_cast<int64_t>(slopes.size())}}));
    const int64_t workspace = attention_workspace(site.shard);
    const Shape sums{DType::kF32, {site.q.dims[0], site.q.dims[2], site.q.dims[1]}};
    return {custom_call({.kernel = kAttentionKernel,
                         .target = kAttentionTarget,
                         .attributes = site.attributes,
                         .results = {site.q, sums, scratch(workspace)},
                         .in = site.operand_splits(),
                         .out = {site.split_q, site.split_sums, {}},
                         .cost = {.flops = site.flops, .bytes = 2 * (site.q.bytes() + site.k.bytes())},
                         .gradient = [site](const VjpArgs& args) { return gradient(site, args); }},
                        operands)[0]};
  };
}

}  // namespace fettle::cpu
