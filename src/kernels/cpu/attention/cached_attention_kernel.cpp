#include "kernels/cpu/attention/cached_attention_kernel.h"

#include <algorithm>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/next_attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

// The numbers of the composite's inputs. A window and a chunk follow, if there are any.
enum Input : size_t { kQueries, kKeys, kValues, kLayer, kFilled, kOptions };

struct CachedSite {
  Shape q, q_shard, stack, stack_shard;  // of the queries, and of the keys and values of all layers
  Partition split_q, split_stack;
  int64_t devices = 1;   // number of devices that compute different rows or heads
  int64_t window = 0;    // number of keys that a query sees; 0: no limit, -1: an input has the number
  bool chunked = false;  // the last input is the number of positions in a chunk
  bool causal = true;
  double scale = 1, softcap = 0;
  std::vector<double> slopes;  // one per query head; all 0: none
};

std::optional<CachedSite> read_cached(const CompositeSite& site) {
  const Shape &q = site.inputs[kQueries], &stack = site.inputs[kKeys];
  if ((q.dtype != DType::kF32 && q.dtype != DType::kBF16) || stack.dtype != q.dtype || site.inputs[kValues] != stack)
    return std::nullopt;
  CachedSite out{.q = q, .stack = stack, .split_q = site.partitions[kQueries], .split_stack = site.partitions[kKeys]};
  out.split_q.dims.resize(4);
  out.split_stack.dims.resize(5);
  // Only rows and heads may be split, those of the queries in the same way as those of the cache.
  const auto& split = out.split_q.dims;
  Partition of_layer = out.split_q;
  of_layer.dims.emplace(of_layer.dims.begin());
  if (!split[1].empty() || !split[3].empty() || out.split_stack != of_layer) return std::nullopt;
  out.q_shard = shard_of(q, out.split_q, site.mesh);
  out.stack_shard = shard_of(stack, out.split_stack, site.mesh);
  const Dims &queries = out.q_shard.dims, &keys = out.stack_shard.dims;
  if (queries[2] % keys[3] != 0 || keys[2] < queries[1]) return std::nullopt;
  out.devices = q.elements() / out.q_shard.elements();
  out.window = std::get<int64_t>(site.attributes.at("window"));
  out.chunked = std::get<bool>(site.attributes.at("chunked"));
  out.causal = std::get<bool>(site.attributes.at("causal"));
  out.scale = std::get<double>(site.attributes.at("scale"));
  out.softcap = std::get<double>(site.attributes.at("softcap"));
  const auto& slopes = std::get<std::vector<float>>(site.attributes.at("slopes"));
  out.slopes.assign(slopes.begin(), slopes.end());
  out.slopes.resize(q.dims[2], 0.0);
  return out;
}

Tensor window_of(const CachedSite& site, const Tensors& inputs) {
  return site.window == 0 ? constant(0, DType::kI32) : inputs[kOptions];
}

Tensor slopes_of(const CachedSite& site) {
  return literal(site.slopes, {DType::kF32, {static_cast<int64_t>(site.slopes.size())}});
}

// The operands q, keys, values, segments, window, slopes, position of the first query, number of the layer.
Tensor piece_call(const CachedSite& site, const Tensors& inputs) {
  // The position of the first query is known only at run time. For the cost, the queries are the last ones of the
  // cache.
  const Dims &queries = site.q_shard.dims, &keys = site.stack_shard.dims;
  const AttentionProblem p{.rows = 1,
                           .length = queries[1],
                           .keys = keys[2],
                           .heads = queries[2],
                           .key_heads = keys[3],
                           .width = queries[3],
                           .first = keys[2] - queries[1],
                           .dtype = site.q.dtype,
                           .causal = site.causal,
                           .window = std::max<int64_t>(0, site.window)};
  // The segment of a key is the number of its chunk.
  const Shape segments{DType::kI32, {1, p.keys}};
  return custom_call(
      {.kernel = kCachedAttentionKernel,
       .target = kCachedAttentionTarget,
       .attributes = {{"scale", static_cast<float>(site.scale)},
                      {"softcap", static_cast<float>(site.softcap)},
                      {"causal", site.causal}},
       // The second result is scratch memory, which nothing reads (attention_kernel.cpp).
       .results = {site.q, Shape{DType::kU8, {attention_workspace(p)}}},
       .in = {site.split_q, site.split_stack, site.split_stack, {}, {}, {{site.split_q.dims[2]}}, {}, {}},
       .out = {site.split_q, {}},
       .cost = {.flops = site.devices * attention_flops(p),
                .bytes = 2 * (site.q.bytes() + site.stack.bytes() / site.stack.dims[0])}},
      {inputs[kQueries], inputs[kKeys], inputs[kValues],
       site.chunked ? iota(segments, 1) / inputs.back() : full(1, segments), window_of(site, inputs), slopes_of(site),
       reshape(inputs[kFilled], {}), inputs[kLayer]})[0];
}

// The operands q, keys, values, window, chunk, slopes, positions of the queries, number of the layer.
Tensor next_call(const CachedSite& site, const Tensors& inputs) {
  const Dims &queries = site.q_shard.dims, &keys = site.stack_shard.dims;
  const NextAttention p{
      .rows = queries[0], .keys = keys[2], .heads = queries[2], .key_heads = keys[3], .width = queries[3]};
  return custom_call(
      {.kernel = kCachedAttentionKernel,
       .target = kNextAttentionTarget,
       .attributes = {{"scale", static_cast<float>(site.scale)}, {"softcap", static_cast<float>(site.softcap)}},
       .results = {site.q, Shape{DType::kU8, {next_attention_workspace(p)}}},
       .in = {site.split_q,
              site.split_stack,
              site.split_stack,
              {},
              {},
              {{site.split_q.dims[2]}},
              {{site.split_q.dims[0]}},
              {}},
       .out = {site.split_q, {}},
       .cost = {.flops = site.devices * next_attention_flops(p),
                .bytes = 2 * (site.q.bytes() + site.stack.bytes() / site.stack.dims[0])}},
      {inputs[kQueries], inputs[kKeys], inputs[kValues], window_of(site, inputs),
       site.chunked ? inputs.back() : constant(0, DType::kI32), slopes_of(site), inputs[kFilled], inputs[kLayer]})[0];
}

}  // namespace

bool cached_attention_pays(const CompositeSite& site) {
  constexpr int64_t kShortest = 16;
  const Shape& q = site.inputs[kQueries];
  return (q.dims[1] == 1 || q.dims[1] >= kShortest) && has_fast_ops(q.dtype);
}

std::optional<Kernel> cached_attention_kernel(const CompositeSite& composite) {
  const std::optional<CachedSite> found = read_cached(composite);
  if (!found) return std::nullopt;
  if (found->q.dims[1] > 1) {
    if (found->q_shard.dims[0] > 1 || !found->split_q.dims[0].empty()) return std::nullopt;
    return [site = *found](const Tensors& inputs) -> Tensors { return {piece_call(site, inputs)}; };
  }
  if (!found->causal) return std::nullopt;
  return [site = *found](const Tensors& inputs) -> Tensors { return {next_call(site, inputs)}; };
}

}  // namespace fettle::cpu
