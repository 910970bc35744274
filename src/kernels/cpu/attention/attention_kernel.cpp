#include "kernels/cpu/attention/attention_kernel.h"

#include <algorithm>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/attention_site.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

// The data that the calls for one composite share. The operands of each call begin with q, k, v, segments, window and
// slopes. A window of 0 means no window. Slopes that are all 0 mean no slopes.
struct Site : AttentionSite {
  NamedAttributes attributes;
  AttentionProblem shard;  // sizes of one device's shard; pointers are not set
  int64_t flops = 0;       // FLOPs of one forward pass over all devices

  std::vector<Partition> operand_splits() const {
    return {split_q, split_k, split_k, split_segments, {}, split_heads()};
  }
};

std::optional<Site> read(const CompositeSite& site) {
  const std::optional<AttentionSite> found = read_attention(site);
  if (!found || (found->q.dtype != DType::kF32 && found->q.dtype != DType::kBF16)) return std::nullopt;
  Site out{*found};
  out.attributes = {
      {"scale", static_cast<float>(out.scale)}, {"softcap", static_cast<float>(out.softcap)}, {"causal", out.causal}};
  out.shard = {.rows = out.q_shard.dims[0],
               .length = out.q_shard.dims[1],
               .keys = out.k_shard.dims[1],
               .heads = out.q_shard.dims[2],
               .key_heads = out.k_shard.dims[2],
               .width = out.q_shard.dims[3],
               .dtype = out.q.dtype,
               .causal = out.causal,
               .window = std::max<int64_t>(0, out.window)};
  out.flops = out.devices * attention_flops(out.shard);
  return out;
}

// Returns the shape of a call's scratch memory. The call returns this memory as a result that nothing reads, so the
// compiler allocates and reuses the memory. The compiler counts this memory among its temporaries, so CallCost states
// no workspace.
Shape scratch(int64_t bytes) {
  return {DType::kU8, {bytes}};
}

// Computes the gradients of the operands. Only the result o has a cotangent, because log-sum-exp is not a result of the
// composite.
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
                                     .cost = {.flops = site.flops / 2 * 5, .bytes = bytes},
                                     .takes_slices = true},
                                    operands);
  for (size_t i = 0; i < 3; ++i) cotangents[i] = grads[i];
  return cotangents;
}

}  // namespace

bool attention_pays(const CompositeSite& site) {
  constexpr int64_t kShortest = 256;
  const Shape& q = site.inputs[0];
  return q.dims[1] >= kShortest && has_fast_ops(q.dtype);
}

std::optional<Kernel> attention_kernel(const CompositeSite& composite) {
  const std::optional<Site> found = read(composite);
  if (!found) return std::nullopt;
  std::vector<double> slopes = found->slopes;
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
                         .takes_slices = true,
                         .gradient = [site](const VjpArgs& args) { return gradient(site, args); }},
                        operands)[0]};
  };
}

}  // namespace fettle::cpu
