#include "models/blocks/attention.h"

#include <algorithm>
#include <cmath>

#include "graph/composite.h"
#include "graph/ops.h"
#include "models/blocks/ring_attention.h"

namespace fettle {
namespace {

struct Keys {
  Tensor k_BSKH, v_BSKH;
  Tensor index;  // i32: the index of each key in its row, [S], or [B, S] when it differs between the rows
  Tensor segments_BS;
};

// Computes attention for one block of queries over all `keys`. `index` is the index of each query in its row: i32 [T],
// or [B, T] when it differs between the rows.
// With `prompts_BT`, queries also see the keys of the segments with these numbers.
Tensor attend(const Tensor& q_BTNH, const Tensor& index, const Tensor& segments_BT, const Keys& keys,
              const AttentionOptions& options, const Tensor& prompts_BT = {}) {
  const int64_t b = q_BTNH.dim(0), t = q_BTNH.dim(1), n = q_BTNH.dim(2), h = q_BTNH.dim(3);
  const int64_t k = keys.k_BSKH.dim(2), s = keys.k_BSKH.dim(1), g = n / k;
  const Tensor q_BTKGH = reshape(q_BTNH, {b, t, k, g, h});
  const Tensor products = dot_general(
      q_BTKGH, keys.k_BSKH,
      {.lhs_batching = {0, 2}, .rhs_batching = {0, 2}, .lhs_contracting = {4}, .rhs_contracting = {3}}, DType::kF32);
  Tensor scores_BKTGS = soft_cap(products * options.scale, options.softcap);
  const bool alike = index.rank() == 1;  // the indices are the same in all rows
  const Tensor distance = alike                    ? expand(index, 1) - expand(keys.index, 0)
                          : keys.index.rank() == 1 ? expand(index, 2) - reshape(keys.index, {1, 1, s})
                                                   : expand(index, 2) - expand(keys.index, 1);
  if (!options.slopes.empty()) {
    const Tensor slopes = literal(options.slopes, {DType::kF32, {1, k, 1, g, 1}});
    scores_BKTGS = scores_BKTGS - slopes * reshape(convert(distance, DType::kF32), {alike ? 1 : b, 1, t, 1, s});
  }
  const Tensor of_keys_B1S = expand(keys.segments_BS, 1);
  Tensor seen_BTS = compare(expand(segments_BT, 2), Direction::kEQ, of_keys_B1S);
  if (prompts_BT) seen_BTS = logical_or(seen_BTS, compare(expand(prompts_BT, 2), Direction::kEQ, of_keys_B1S));
  if (options.causal) seen_BTS = logical_and(seen_BTS, compare(distance, Direction::kGE, constant(0, DType::kI32)));
  if (options.window) {
    seen_BTS = logical_and(seen_BTS, compare(distance, Direction::kLT, options.window));
    if (!options.causal) seen_BTS = logical_and(seen_BTS, compare(-distance, Direction::kLT, options.window));
  }
  const Tensor seen_B1T1S = reshape(seen_BTS, {b, 1, t, 1, s});
  const Tensor masked = select(seen_B1T1S, scores_BKTGS, constant(kMaskedScore, DType::kF32));
  Tensor top = expand(reduce_max(masked, {-1}), -1), sinks;
  if (options.sinks_N) {
    sinks = broadcast_to(reshape(convert(options.sinks_N, DType::kF32), {1, k, 1, g, 1}), top.dims());
    top = maximum(top, sinks);
  }
  top = stop_gradient(top);
  const Tensor weight = exp(masked - top);
  Tensor total = expand(reduce_sum(weight, {-1}), -1);
  if (sinks) total = total + exp(sinks - top);
  const Tensor probability = convert(weight / total, q_BTNH.dtype());
  const Tensor out_BKTGH =
      dot_general(probability, keys.v_BSKH,
                  {.lhs_batching = {0, 1}, .rhs_batching = {0, 2}, .lhs_contracting = {4}, .rhs_contracting = {1}});
  return reshape(transpose(out_BKTGH, {0, 2, 1, 3, 4}), {b, t, n, keys.v_BSKH.dim(3)});
}

// Reshapes [B, T, ...] into [T / block, B, block, ...].
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

// Computes attention for the queries [start, end) of each row, one block of queries at a time. With a causal mask, only
// the keys before `end` are read; else all keys are read.
Tensor blockwise_range(const std::vector<Tensor>& inputs, const Tensor& index_T, const AttentionOptions& options,
                       int64_t start, int64_t end, int64_t block) {
  const Tensor &q_BTNH = inputs[0], &k_BTKH = inputs[1], &v_BTKH = inputs[2], &segments_BT = inputs[3];
  const int64_t last = options.causal ? end : q_BTNH.dim(1);
  const Keys seen{slice(k_BTKH, 1, 0, last), slice(v_BTKH, 1, 0, last), slice(index_T, 0, 0, last),
                  slice(segments_BT, 1, 0, last)};
  // blockwise() counts the queries from `start`. So the indices of the keys must be relative to `start`, too.
  const Keys shifted{seen.k_BSKH, seen.v_BSKH, seen.index - constant(static_cast<double>(start), DType::kI32),
                     seen.segments_BS};
  return blockwise(slice(q_BTNH, 1, start, end), slice(segments_BT, 1, start, end), shifted, options, block);
}

// The body of the composite. Its inputs are q, k, v, segments and, if there is one, the window.
Tensor attention_body(const std::vector<Tensor>& inputs, AttentionOptions options, int64_t block, bool scores_again) {
  const Tensor &q_BTNH = inputs[0], &segments_BT = inputs[3];
  if (inputs.size() > 4) options.window = inputs[4];
  const int64_t t = q_BTNH.dim(1);
  const Tensor index_T = iota({DType::kI32, {t}}, 0);
  const Keys keys{inputs[1], inputs[2], index_T, segments_BT};
  if (t <= block && scores_again) return blockwise(q_BTNH, segments_BT, keys, options, t);
  if (t <= block) return attend(q_BTNH, index_T, segments_BT, keys, options);
  const int64_t blocks = t / block, whole = blocks * block;
  std::vector<Tensor> outputs;
  if (!options.causal) {
    if (whole == t) return blockwise(q_BTNH, segments_BT, keys, options, block);
    for (const auto& [start, end] : {std::pair{int64_t{0}, whole}, std::pair{whole, t}})
      outputs.push_back(blockwise_range(inputs, index_T, options, start, end, std::min(block, end - start)));
    return concatenate(outputs, 1);
  }
  // Keys after a query are never seen. So the queries are computed in up to four groups, and each group reads only the
  // keys up to its own end.
  const int64_t groups = blocks % 4 == 0 ? 4 : blocks % 2 == 0 ? 2 : 1, part = whole / groups;
  for (int64_t g = 0; g < groups; ++g)
    outputs.push_back(blockwise_range(inputs, index_T, options, g * part, (g + 1) * part, block));
  if (whole < t) outputs.push_back(blockwise_range(inputs, index_T, options, whole, t, t - whole));
  return concatenate(outputs, 1);
}

// Returns the window when it is a constant of the program; 0: no window, -1: not a constant.
int64_t known_window(const Tensor& window) {
  if (!window) return 0;
  const auto* constant = std::get_if<ConstantValue>(&window.block()->node(window.node()).attributes);
  return constant != nullptr && !constant->values ? static_cast<int64_t>(constant->splat) : -1;
}

}  // namespace

std::vector<double> alibi_slopes(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> out;
  for (int64_t i = 1; i <= power; ++i)
    out.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  // If the number of heads is not a power of two, the remaining heads take every second slope of the sequence for
  // 2 * `power` heads.
  for (int64_t i = 0; power + i < heads; ++i)
    out.push_back(std::exp2(-8.0 * static_cast<double>(2 * i + 1) / static_cast<double>(2 * power)));
  return out;
}

namespace {

// Returns, for each position, the number of its chunk in the document with this number. Chunk numbers take the place of
// document numbers: all chunks of a row have different numbers, also those of different documents. Padding stays 0.
// Without a chunk, returns the documents.
Tensor chunks_of(const Tensor& documents_BT, const Forward& f, const Tensor& chunk) {
  if (!chunk) return documents_BT;
  // The largest number of chunks that one document can have.
  const int64_t most = (documents_BT.dim(1) - 1) / f.config.attention_chunk + 1;
  if (most == 1) return documents_BT;
  const Tensor numbers = documents_BT * static_cast<double>(most) + f.positions / chunk;
  return select(compare(documents_BT, Direction::kEQ, constant(0, DType::kI32)), zeros_like(numbers), numbers);
}

// Computes attention of documents that continue others (f.prompts). Distances are those of the positions, because a
// branch may stand far behind its prompt. Still, no query sees a later key, so each part of the queries reads only the
// keys up to its own end. Evaluation has no gradients, so nothing of a block of queries is kept.
Tensor attend_to_prompts(const Forward& f, const Tensor& q_BTNH, const Tensor& k_BTKH, const Tensor& v_BTKH,
                         const AttentionOptions& options) {
  const std::vector<Tensor> queries{q_BTNH, f.positions, chunks_of(f.segments, f, options.chunk),
                                    chunks_of(f.prompts, f, options.chunk)};
  const int64_t t = q_BTNH.dim(1), block = std::min(f.attention_block, t);
  // Up to eight parts with the same number of blocks, then the blocks that are left, then a smaller block.
  const int64_t parts = std::min<int64_t>(t / block, 8), length = t / block / parts * block;
  std::vector<Tensor> outputs;
  for (int64_t start = 0, end = 0; start < t; start = end) {
    const int64_t left = t - start, size = std::min(block, left);
    end = start + (left >= length ? length : left / size * size);
    const Keys keys{slice(k_BTKH, 1, 0, end), slice(v_BTKH, 1, 0, end), slice(queries[1], 1, 0, end),
                    slice(queries[2], 1, 0, end)};
    std::vector<Tensor> blocks;
    for (const Tensor& x : queries) blocks.push_back(to_blocks(slice(x, 1, start, end), size));
    const auto step = [&](const Tensor&, const std::vector<Tensor>&, const std::vector<Tensor>& xs) -> ScanStep {
      return {{}, {attend(xs[0], xs[1], xs[2], keys, options, xs[3])}};
    };
    outputs.push_back(from_blocks(scan((end - start) / size, {}, blocks, step, {}).ys[0]));
  }
  return concatenate(outputs, 1);
}

NamedAttributes attributes_of(const AttentionOptions& options) {
  return {{"scale", options.scale},
          {"softcap", options.softcap},
          {"causal", options.causal},
          {"slopes", std::vector<float>(options.slopes.begin(), options.slopes.end())},
          {"window", known_window(options.window)}};
}

// Computes attention over the keys and values of a cache, to which those of the queries have been written.
Tensor attend_to_cache(const Forward& f, const Tensor& q_BTNH, const CacheSlice& keys, const CacheSlice& values,
                       const AttentionOptions& options) {
  const int64_t b = q_BTNH.dim(0), t = q_BTNH.dim(1), s = keys.stack.dim(2);
  // During generation, a row is one document. The positions of the cache that are not filled yet come after every
  // query, so the causal mask hides them.
  const auto body = [&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& filled_B,
                        const AttentionOptions& of) {
    const Tensor own_T = iota({DType::kI32, {t}}, 0);
    const Tensor index = b == 1 ? own_T + reshape(filled_B, {}) : expand(own_T, 0) + expand(filled_B, 1);
    Keys seen{k, v, iota({DType::kI32, {s}}, 0), full(1, {DType::kI32, {b, s}})};
    Tensor segments = full(1, {DType::kI32, {b, t}});
    if (of.chunk) {
      seen.segments_BS = broadcast_to(expand(seen.index / of.chunk, 0), {b, s});
      segments = broadcast_to(b == 1 ? expand(index / of.chunk, 0) : index / of.chunk, {b, t});
    }
    return attend(q, index, segments, seen, of);
  };
  const bool composed = (b == 1 || t == 1) && !options.sinks_N && values.stack.dim(4) == keys.stack.dim(4);
  if (!composed) return body(q_BTNH, read(keys), read(values), f.cache->filled, options);
  internal_check(keys.number == values.number, "keys and values must be those of one layer");
  const Partition cache = f.sharding.fitting({"", "batch", "", "act_kv_heads", ""}, keys.stack.dims());
  std::vector<Tensor> inputs{q_BTNH, keys.stack, values.stack, keys.number, f.cache->filled};
  std::vector<Partition> partitions{f.sharding.fitting({"batch", "length", "act_heads", ""}, q_BTNH.dims()), cache,
                                    cache};
  for (const Tensor& option : {options.window, options.chunk})
    if (option) inputs.push_back(option);
  partitions.resize(inputs.size());
  NamedAttributes attributes = attributes_of(options);
  attributes["chunked"] = static_cast<bool>(options.chunk);
  return composite("cached_attention", attributes, inputs, partitions,
                   [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
                     AttentionOptions of = options;
                     size_t next = 5;
                     if (of.window) of.window = in[next++];
                     if (of.chunk) of.chunk = in[next];
                     return {body(in[0], read({in[1], in[3]}), read({in[2], in[3]}), in[4], of)};
                   })[0];
}

}  // namespace

Tensor attention(const Forward& f, const Tensor& q_BTNH, const Tensor& k_BTKH, const Tensor& v_BTKH,
                 const AttentionOptions& options, LayerCache* cache) {
  PathScope scope("attention");
  if (cache != nullptr) {
    if (k_BTKH) {
      cache->append("keys", k_BTKH, f.cache->filled);
      cache->append("values", v_BTKH, f.cache->filled);
    }
    return attend_to_cache(f, q_BTNH, cache->slice("keys"), cache->slice("values"), options);
  }
  if (f.prompts) return attend_to_prompts(f, q_BTNH, k_BTKH, v_BTKH, options);
  const Tensor segments = chunks_of(f.segments, f, options.chunk);
  const LogicalAxes queries{"batch", "length", "act_heads", ""}, keys{"batch", "length", "act_kv_heads", ""};
  std::vector<Tensor> inputs{q_BTNH, k_BTKH, v_BTKH, segments};
  std::vector<Partition> partitions{f.sharding.fitting(queries, q_BTNH.dims()), f.sharding.fitting(keys, k_BTKH.dims()),
                                    f.sharding.fitting(keys, v_BTKH.dims()),
                                    f.sharding.fitting({"batch", "length"}, segments.dims())};
  if (options.window) {
    inputs.push_back(options.window);
    partitions.emplace_back();
  }
  const RingSplit split{partitions[0], partitions[1], known_window(options.window)};
  const auto body = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    if (is_ring(split, f.sharding.mesh())) return {ring_attention(in, options, split, f.attention_block)};
    return {attention_body(in, options, f.attention_block, f.remat.scores_again)};
  };
  if (options.sinks_N || v_BTKH.dim(3) != k_BTKH.dim(3)) return body(inputs)[0];  // no kernel supports these
  return composite("attention", attributes_of(options), inputs, partitions, body)[0];
}

}  // namespace fettle
