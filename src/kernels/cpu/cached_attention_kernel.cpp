#include "kernels/cpu/cached_attention_kernel.h"

#include <algorithm>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

struct CachedSite {
  Shape q;
  Partition split_q, split_cache;  // of q, and of the keys and values
  AttentionProblem shard;          // sizes of one device's shard; pointers are not set
  int64_t devices = 1;             // number of devices that compute different heads
  int64_t window = 0;              // number of keys that a query sees; 0: no limit, -1: an input has the number
  bool chunked = false;            // the last input is the number of positions in a chunk
  std::vector<double> slopes;      // one per query head; all 0: none
};

std::optional<CachedSite> read_cached(const CompositeSite& site) {
  const Shape &q = site.inputs[0], &keys = site.inputs[1];
  if ((q.dtype != DType::kF32 && q.dtype != DType::kBF16) || keys.dtype != q.dtype || site.inputs[2] != keys)
    return std::nullopt;
  CachedSite out{.q = q, .split_q = site.partitions[0], .split_cache = site.partitions[1]};
  for (Partition* split : {&out.split_q, &out.split_cache}) split->dims.resize(4);
  const auto& split = out.split_q.dims;
  if (!split[0].empty() || !split[1].empty() || !split[3].empty() || out.split_cache != out.split_q)
    return std::nullopt;
  const Shape q_shard = shard_of(q, out.split_q, site.mesh), shard = shard_of(keys, out.split_cache, site.mesh);
  if (q_shard.dims[2] % shard.dims[2] != 0 || shard.dims[1] < q_shard.dims[1]) return std::nullopt;
  out.devices = q.elements() / q_shard.elements();
  out.window = std::get<int64_t>(site.attributes.at("window"));
  out.chunked = std::get<bool>(site.attributes.at("chunked"));
  const auto& slopes = std::get<std::vector<float>>(site.attributes.at("slopes"));
  out.slopes.assign(slopes.begin(), slopes.end());
  out.slopes.resize(q.dims[2], 0.0);
  // The position of the first query is known only at run time. For the cost, the queries are the last ones of the
  // cache.
  out.shard = {.rows = 1,
               .length = q_shard.dims[1],
               .keys = shard.dims[1],
               .heads = q_shard.dims[2],
               .key_heads = shard.dims[2],
               .width = q_shard.dims[3],
               .first = shard.dims[1] - q_shard.dims[1],
               .dtype = q.dtype,
               .causal = std::get<bool>(site.attributes.at("causal")),
               .window = std::max<int64_t>(0, out.window),
               .scale = static_cast<float>(std::get<double>(site.attributes.at("scale"))),
               .softcap = static_cast<float>(std::get<double>(site.attributes.at("softcap")))};
  return out;
}

// Returns the segment of each key of the cache, [1, S]: the number of its chunk.
Tensor cache_segments(const CachedSite& site, const Tensor& chunk) {
  const Shape shape{DType::kI32, {1, site.shard.keys}};
  return site.chunked ? iota(shape, 1) / chunk : full(1, shape);
}

}  // namespace

bool cached_attention_pays(const CompositeSite& site) {
  constexpr int64_t kShortest = 16;
  const Shape& q = site.inputs[0];
  return q.dims[1] >= kShortest && has_fast_ops(q.dtype);
}

std::optional<Kernel> cached_attention_kernel(const CompositeSite& composite) {
  const std::optional<CachedSite> found = read_cached(composite);
  if (!found) return std::nullopt;
  return [site = *found](const Tensors& inputs) -> Tensors {
    const AttentionProblem& p = site.shard;
    const Tensors operands{inputs[0],
                           inputs[1],
                           inputs[2],
                           cache_segments(site, inputs.back()),
                           site.window == 0 ? constant(0, DType::kI32) : inputs[4],
                           literal(site.slopes, {DType::kF32, {static_cast<int64_t>(site.slopes.size())}}),
                           reshape(inputs[3], {})};
    return {custom_call({.kernel = kCachedAttentionKernel,
                         .target = kCachedAttentionTarget,
                         .attributes = {{"scale", p.scale}, {"softcap", p.softcap}, {"causal", p.causal}},
                         // The second result is scratch memory, which nothing reads (attention_kernel.cpp).
                         .results = {site.q, Shape{DType::kU8, {attention_workspace(p)}}},
                         .in = {site.split_q, site.split_cache, site.split_cache, {}, {}, {{site.split_q.dims[2]}}, {}},
                         .out = {site.split_q, {}},
                         .cost = {.flops = site.devices * attention_flops(p),
                                  .bytes = 2 * (site.q.bytes() + inputs[1].shape().bytes())},
                         .reads_slices = true},
                        operands)[0]};
  };
}

}  // namespace fettle::cpu
