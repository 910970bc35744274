#include "models/blocks/attention.h"

#include <cmath>

#include "graph/ops.h"

namespace fettle {
namespace {

constexpr double kMasked = -1e30;  // below any score, finite so that an all-masked row stays finite

struct Keys {
  Tensor k_BSKH, v_BSKH;
  Tensor index_S;  // i32 place in the row
  Tensor segments_BS;
};

// One block of queries over all `keys`.
Tensor attend(const Tensor& q_BTNH, const Tensor& index_T, const Tensor& segments_BT, const Keys& keys,
              const AttentionOptions& options) {
  const int64_t b = q_BTNH.dim(0), t = q_BTNH.dim(1), n = q_BTNH.dim(2), h = q_BTNH.dim(3);
  const int64_t k = keys.k_BSKH.dim(2), s = keys.k_BSKH.dim(1), g = n / k;
  const Tensor q_BTKGH = reshape(q_BTNH, {b, t, k, g, h});
  const Tensor products = dot_general(
      q_BTKGH, keys.k_BSKH,
      {.lhs_batching = {0, 2}, .rhs_batching = {0, 2}, .lhs_contracting = {4}, .rhs_contracting = {3}}, DType::kF32);
  Tensor scores_BKTGS = soft_cap(products * options.scale, options.softcap);
  const Tensor distance_TS = expand(index_T, 1) - expand(keys.index_S, 0);
  if (!options.slopes.empty()) {
    const Tensor slopes = literal(options.slopes, {DType::kF32, {1, k, 1, g, 1}});
    scores_BKTGS = scores_BKTGS - slopes * reshape(convert(distance_TS, DType::kF32), {1, 1, t, 1, s});
  }
  Tensor seen_BTS = compare(expand(segments_BT, 2), "EQ", expand(keys.segments_BS, 1));
  if (options.causal) {
    Tensor seen_TS = compare(distance_TS, "GE", constant(0, DType::kI32));
    if (options.window) seen_TS = logical_and(seen_TS, compare(distance_TS, "LT", options.window));
    seen_BTS = logical_and(seen_BTS, seen_TS);
  }
  const Tensor seen_B1T1S = reshape(seen_BTS, {b, 1, t, 1, s});
  const Tensor masked = select(seen_B1T1S, scores_BKTGS, constant(kMasked, DType::kF32));
  const Tensor top = stop_gradient(expand(reduce_max(masked, {-1}), -1));
  const Tensor weight = exp(masked - top);
  const Tensor probability = convert(weight / expand(reduce_sum(weight, {-1}), -1), q_BTNH.dtype());
  const Tensor out_BKTGH =
      dot_general(probability, keys.v_BSKH,
                  {.lhs_batching = {0, 1}, .rhs_batching = {0, 2}, .lhs_contracting = {4}, .rhs_contracting = {1}});
  return reshape(transpose(out_BKTGH, {0, 2, 1, 3, 4}), {b, t, n, h});
}

// [B, T, ...] -> [T / block, B, block, ...], and back.
Tensor to_blocks(const Tensor& x, int64_t block) {
  Dims split{x.dim(0), x.dim(1) / block, block}, order{1, 0, 2};
  for (int64_t i = 2; i < x.rank(); ++i) {
    split.push_back(x.dim(i));
    order.push_back(i + 1);
  }
  return transpose(reshape(x, split), order);
}

Tensor from_blocks(const Tensor& x) {
  Dims order{1, 0, 2}, merged{x.dim(1), x.dim(0) * x.dim(2)};
  for (int64_t i = 3; i < x.rank(); ++i) {
    order.push_back(i);
    merged.push_back(x.dim(i));
  }
  return reshape(transpose(x, order), merged);
}

Tensor blockwise(const Tensor& q_BTNH, const Tensor& segments_BT, const Keys& keys, const AttentionOptions& options,
                 int64_t block) {
  const int64_t blocks = q_BTNH.dim(1) / block;
  const ScanStep out =
      scan(blocks, {}, {to_blocks(q_BTNH, block), to_blocks(segments_BT, block)},
           [&](const Tensor& index, const std::vector<Tensor>&, const std::vector<Tensor>& xs) -> ScanStep {
             const Tensor index_T = iota({DType::kI32, {block}}, 0) + index * static_cast<double>(block);
             return {{}, {attend(xs[0], index_T, xs[1], keys, options)}};
           },
           {.remat = Remat::kFull});
  return from_blocks(out.ys[0]);
}

}  // namespace

std::vector<double> alibi_slopes(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> out;
  for (int64_t i = 1; i <= power; ++i)
    out.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  // The heads beyond a power of two take every other slope of twice as many.
  for (int64_t i = 0; power + i < heads; ++i)
    out.push_back(std::exp2(-8.0 * static_cast<double>(2 * i + 1) / static_cast<double>(2 * power)));
  return out;
}

Tensor attention(const Forward& f, const Tensor& q_BTNH, const Tensor& k_BTKH, const Tensor& v_BTKH,
                 const AttentionOptions& options, LayerCache* cache) {
  PathScope scope("attention");
  const int64_t b = q_BTNH.dim(0), t = q_BTNH.dim(1);
  Tensor index_T = iota({DType::kI32, {t}}, 0);
  if (cache != nullptr) {
    const Tensor zero = constant(0, DType::kI32);
    const std::vector<Tensor> at{zero, f.cache->filled, zero, zero};
    cache->keys_BSKH = dynamic_update_slice(cache->keys_BSKH, k_BTKH, at);
    cache->values_BSKH = dynamic_update_slice(cache->values_BSKH, v_BTKH, at);
    const int64_t s = cache->keys_BSKH.dim(1);
    index_T = index_T + f.cache->filled;
    // Rows of generation are one document without padding; keys not yet filled lie after every query.
    const Keys keys{cache->keys_BSKH, cache->values_BSKH, iota({DType::kI32, {s}}, 0), full(1, {DType::kI32, {b, s}})};
    return attend(q_BTNH, index_T, full(1, {DType::kI32, {b, t}}), keys, options);
  }
  const Keys keys{k_BTKH, v_BTKH, index_T, f.segments};
  const int64_t block = f.attention_block;
  if (t <= block || t % block != 0) return attend(q_BTNH, index_T, f.segments, keys, options);
  if (!options.causal) return blockwise(q_BTNH, f.segments, keys, options, block);
  // Keys after a query are never seen: each quarter of the queries reads only the keys up to its end.
  const int64_t groups = (t / block) % 4 == 0 ? 4 : (t / block) % 2 == 0 ? 2 : 1;
  const int64_t part = t / groups;
  std::vector<Tensor> outputs;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t end = (g + 1) * part;
    const Keys seen{slice(k_BTKH, 1, 0, end), slice(v_BTKH, 1, 0, end), slice(index_T, 0, 0, end),
                    slice(f.segments, 1, 0, end)};
    // Queries count from the group's start, so keys do too.
    const Keys shifted{seen.k_BSKH, seen.v_BSKH, seen.index_S - constant(static_cast<double>(g * part), DType::kI32),
                       seen.segments_BS};
    outputs.push_back(
        blockwise(slice(q_BTNH, 1, g * part, end), slice(f.segments, 1, g * part, end), shifted, options, block));
  }
  return concatenate(outputs, 1);
}

}  // namespace fettle
