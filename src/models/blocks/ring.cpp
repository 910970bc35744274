#include "models/blocks/ring.h"

#include <functional>

#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

// The queries or the keys of all devices, for one part of each device's positions (see Ring). Arrays of queries have
// the blocks in dim 0 and the devices in dim 2. Arrays of keys have the devices in dim 1.
struct Side {
  Tensors values;  // queries: q, index, segments, and more in the backward pass. Keys: k, v, index, segments
  Tensors sums;    // the sums of the results so far; empty: no sums
};

// Computes the results for the queries of one part with the keys of one part, and adds them to queries.sums and
// keys.sums.
using Meet = std::function<void(Side& queries, Side& keys)>;

// Splits dim 0 of `x` into `parts` equal parts.
Tensors split_parts(const Tensor& x, int64_t parts) {
  Tensors out;
  const int64_t size = x.dim(0) / parts;
  for (int64_t p = 0; p < parts; ++p) out.push_back(slice(x, 0, p * size, (p + 1) * size));
  return out;
}

// Removes dim 0, whose size is 1.
Tensor without_first(const Tensor& x) {
  return reshape(x, Dims(x.dims().begin() + 1, x.dims().end()));
}

void append(Tensors& list, const Tensors& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// Removes the first `count` tensors of `list` and returns them.
Tensors take_first(Tensors& list, size_t count) {
  Tensors out(list.begin(), list.begin() + static_cast<int64_t>(count));
  list.erase(list.begin(), list.begin() + static_cast<int64_t>(count));
  return out;
}

// Computes the turns of one pass over the ring, forward or backward.
class Turns {
 public:
  // `operands` are the operands of Ring::attend.
  Turns(const Ring& ring, const Tensors& operands) : ring_(ring) {
    const Tensors q = split_parts(operands[0], ring.parts), segments = split_parts(operands[3], ring.parts);
    std::vector<Tensors> keys;
    for (const size_t i : {1, 2, 4}) keys.push_back(split_parts(operands[i], ring.parts));
    for (int64_t p = 0; p < ring.parts; ++p) {
      for (const Tensors& each : keys) moving_.push_back(without_first(each[p]));
      const int64_t m = q[p].dim(0), t = q[p].dim(4);
      const Tensor local = reshape(iota({DType::kI32, {m * t}}, 0), {m, 1, 1, t});
      const Tensor index = local + reshape(start_of(device(), p), {1, 1, ring.devices, 1});
      queries_.push_back({{q[p], index, segments[p]}, {}});
    }
  }

  // Splits `x` [M, ...] into one array for each part of the queries, and appends the array to the Side::values of its
  // part.
  void add_query_value(const Tensor& x) {
    const Tensors parts = split_parts(x, ring_.parts);
    for (size_t p = 0; p < parts.size(); ++p) queries_[p].values.push_back(parts[p]);
  }

  // Runs all turns. With `sum_keys`, each part of the keys has two sums: the gradients of k and v, in f32. The sums
  // move along with the keys. At the end they return to the device that stores the keys.
  void run(const Meet& meet, bool sum_keys) {
    const Tensors next = ring_.turns > 0 ? moved(moving_, 1) : Tensors{};
    turn(meet, sum_keys, constant(0, DType::kI32), true);
    if (ring_.turns == 0) return;
    moving_ = next;
    if (ring_.turns > 1)
      set_state(scan(ring_.turns - 1, state(), {},
                     [&](const Tensor& index, const Tensors& carries, const Tensors&) -> ScanStep {
                       Turns inside = *this;
                       inside.set_state(carries);
                       // The next keys are sent while this turn computes.
                       const Tensors later = moved(inside.moving_, 1);
                       inside.turn(meet, sum_keys, index + constant(1, DType::kI32), false);
                       inside.moving_ = later;
                       return {inside.state(), {}};
                     })
                    .carries);
    turn(meet, sum_keys, constant(static_cast<double>(ring_.turns), DType::kI32), false);
    key_sums_ = moved(key_sums_, -ring_.turns);
  }

  // Returns element `i` of Side::sums for the queries of all parts, [M, ...].
  Tensor query_sum(size_t i) const {
    Tensors parts;
    for (const Side& side : queries_) parts.push_back(side.sums[i]);
    return concatenate(parts, 0);
  }
  // Returns element `i` (0 or 1) of Side::sums for the keys of all parts, [P, ...].
  Tensor key_sum(size_t i) const {
    Tensors parts;
    for (; i < key_sums_.size(); i += 2) parts.push_back(expand(key_sums_[i], 0));
    return concatenate(parts, 0);
  }

 private:
  Tensor device() const { return iota({DType::kI32, {ring_.devices}}, 0); }

  // `numbers` [D] are device numbers. Returns, for each of these devices, the index in the row at which the device's
  // part `p` begins.
  Tensor start_of(const Tensor& numbers, int64_t p) const {
    const Tensor chunk = p == 0 ? numbers : constant(static_cast<double>(2 * ring_.devices - 1), DType::kI32) - numbers;
    return chunk * static_cast<double>(moving_[0].dim(3));
  }

  // Sends each array from device d to device d + `steps`.
  Tensors moved(const Tensors& xs, int64_t steps) const {
    std::vector<int64_t> sources;
    for (int64_t d = 0; d < ring_.devices; ++d) sources.push_back((d - steps + ring_.devices) % ring_.devices);
    Tensors out;
    for (const Tensor& x : xs)
      out.push_back(collective_permute(x, 1, sources, x.rank() == 5 ? ring_.keys : ring_.key_segments));
    return out;
  }

  // Returns the keys on each device during the turn with this number.
  std::vector<Side> keys(const Tensor& number, bool sum_keys) const {
    const Tensor before = device() - number;
    const Tensor source = select(compare(before, Direction::kLT, constant(0, DType::kI32)),
                                 before + constant(static_cast<double>(ring_.devices), DType::kI32), before);
    std::vector<Side> out;
    for (int64_t p = 0; p < ring_.parts; ++p) {
      const Tensor &k = moving_[3 * p], &v = moving_[3 * p + 1], &segments = moving_[3 * p + 2];
      const Tensor index = expand(start_of(source, p), 1) + expand(iota({DType::kI32, {k.dim(3)}}, 0), 0);
      Side side{{k, v, expand(index, 0), segments}, {}};
      if (sum_keys)
        for (const Tensor& x : {k, v})
          side.sums.push_back(sharding_constraint(full(0, x.shape().with_dtype(DType::kF32)), ring_.keys));
      out.push_back(std::move(side));
    }
    return out;
  }

  // Computes one turn. `first` is true for turn 0, in which the keys are the device's own.
  void turn(const Meet& meet, bool sum_keys, const Tensor& number, bool first) {
    std::vector<Side> k = keys(number, sum_keys);
    std::vector<Side>& q = queries_;
    const Tensors arrived = first ? Tensors{} : moved(key_sums_, 1);
    meet(q.back(), k.front());
    if (ring_.parts == 2 && first) {
      meet(q[1], k[1]);
      meet(q[0], k[0]);
    } else if (ring_.parts == 2) {
      const Tensor before = compare(device(), Direction::kGE, number);  // the keys come from a device before this one
      Side q_either = choose(before, q[0], q[1], 2), k_either = choose(before, k[0], k[1], 1);
      meet(q_either, k_either);
      put_back(before, q_either, q[0], q[1], 2);
      put_back(before, k_either, k[0], k[1], 1);
    }
    key_sums_.clear();
    for (const Side& side : k) append(key_sums_, side.sums);
    for (size_t i = 0; i < arrived.size(); ++i) key_sums_[i] = key_sums_[i] + arrived[i];
  }

  // Reshapes `mask` [D] so that it broadcasts to an array of `rank` dims whose dim `at` counts the devices.
  static Tensor mask_for(const Tensor& mask, int64_t rank, int64_t at) {
    Dims dims(rank, 1);
    dims[at] = mask.dim(0);
    return reshape(mask, dims);
  }

  static Side choose(const Tensor& mask, const Side& a, const Side& b, int64_t at) {
    Side out;
    for (size_t i = 0; i < a.values.size(); ++i)
      out.values.push_back(select(mask_for(mask, a.values[i].rank(), at), a.values[i], b.values[i]));
    for (size_t i = 0; i < a.sums.size(); ++i)
      out.sums.push_back(select(mask_for(mask, a.sums[i].rank(), at), a.sums[i], b.sums[i]));
    return out;
  }

  // Writes the sums of `chosen` back to `a` or `b`, from which choose() took them.
  static void put_back(const Tensor& mask, const Side& chosen, Side& a, Side& b, int64_t at) {
    for (size_t i = 0; i < chosen.sums.size(); ++i) {
      const Tensor own = mask_for(mask, chosen.sums[i].rank(), at);
      a.sums[i] = select(own, chosen.sums[i], a.sums[i]);
      b.sums[i] = select(own, b.sums[i], chosen.sums[i]);
    }
  }

  Tensors state() const {
    Tensors out = moving_;
    append(out, key_sums_);
    for (const Side& side : queries_) append(out, side.sums);
    return out;
  }
  void set_state(Tensors list) {
    moving_ = take_first(list, moving_.size());
    key_sums_ = take_first(list, key_sums_.size());
    for (Side& side : queries_) side.sums = take_first(list, side.sums.size());
  }

  const Ring& ring_;
  std::vector<Side> queries_;
  Tensors moving_;    // the keys of the current turn: k, v and segments of each part
  Tensors key_sums_;  // Side::sums of these keys: two arrays for each part, or none
};

// The scores of a block of queries and the keys of a part, f32 [B, D, K, T, G, S].
struct Scores {
  Tensor capped;  // scores before the mask and the slopes
  Tensor masked;
};

Scores scores_of(const Tensor& q, const Tensor& index, const Tensor& segments, const Tensors& keys,
                 const AttentionOptions& options) {
  const Tensor &k = keys[0], &key_index = keys[2], &key_segments = keys[3];
  const int64_t b = q.dim(0), d = q.dim(1), heads = q.dim(2), t = q.dim(3), g = q.dim(4), s = k.dim(3);
  const Tensor products = dot_general(
      q, k, {.lhs_batching = {0, 1, 2}, .rhs_batching = {0, 1, 2}, .lhs_contracting = {5}, .rhs_contracting = {4}},
      DType::kF32);
  Scores out{soft_cap(products * options.scale, options.softcap), {}};
  const Tensor distance = expand(index, 3) - expand(key_index, 2);  // [1, D, T, S]
  Tensor scores = out.capped;
  if (!options.slopes.empty())
    scores = scores - literal(options.slopes, {DType::kF32, {1, 1, heads, 1, g, 1}}) *
                          reshape(convert(distance, DType::kF32), {1, d, 1, t, 1, s});
  Tensor seen = compare(expand(segments, 3), Direction::kEQ, expand(key_segments, 2));
  if (options.causal) seen = logical_and(seen, compare(distance, Direction::kGE, constant(0, DType::kI32)));
  if (options.window) {
    seen = logical_and(seen, compare(distance, Direction::kLT, options.window));
    if (!options.causal) seen = logical_and(seen, compare(-distance, Direction::kLT, options.window));
  }
  out.masked = select(reshape(seen, {b, d, 1, t, 1, s}), scores, constant(kMaskedScore, DType::kF32));
  return out;
}

// Returns the Meet of the forward pass. Side::sums of the queries are the sum of the weighted values, the largest
// score, and the sum of exp(score - largest score).
Meet meet_forward(const AttentionOptions& options) {
  return [&options](Side& queries, Side& keys) {
    const bool begun = !queries.sums.empty();
    Tensors xs = queries.values;
    append(xs, queries.sums);
    queries.sums =
        scan(xs[0].dim(0), {}, xs, [&](const Tensor&, const Tensors&, const Tensors& x) -> ScanStep {
          const Tensor masked = scores_of(x[0], x[1], x[2], keys.values, options).masked;
          Tensor top = reduce_max(masked, {-1});
          if (begun) top = maximum(top, x[4]);
          const Tensor weights = exp(masked - expand(top, -1));
          Tensor total = reduce_sum(weights, {-1});
          Tensor sum = dot_general(
              convert(weights, x[0].dtype()), keys.values[1],
              {.lhs_batching = {0, 1, 2}, .rhs_batching = {0, 1, 2}, .lhs_contracting = {5}, .rhs_contracting = {3}},
              DType::kF32);
          if (begun) {
            const Tensor kept = exp(x[4] - top);
            sum = sum + x[3] * expand(kept, -1);
            total = total + x[5] * kept;
          }
          return {{}, {sum, top, total}};
        }).ys;
  };
}

// Returns the Meet of the backward pass. Side::values of the queries must also have the cotangent, the log-sum-exp, and
// the sum of cotangent * result over H. Side::sums of the queries has the gradient of q. Side::sums of the keys has the
// gradients of k and v.
Meet meet_backward(const AttentionOptions& options) {
  return [&options](Side& queries, Side& keys) {
    const bool begun = !queries.sums.empty();
    Tensors xs = queries.values;
    append(xs, queries.sums);
    const ScanStep out =
        scan(xs[0].dim(0), keys.sums, xs, [&](const Tensor&, const Tensors& carries, const Tensors& x) -> ScanStep {
          const Tensor &q = x[0], &d_out = x[3], &log_sum = x[4], &delta = x[5];
          const Scores scores = scores_of(q, x[1], x[2], keys.values, options);
          const Tensor weights = exp(scores.masked - expand(log_sum, -1));
          const Tensor d_weights = dot_general(
              d_out, keys.values[1],
              {.lhs_batching = {0, 1, 2}, .rhs_batching = {0, 1, 2}, .lhs_contracting = {5}, .rhs_contracting = {4}},
              DType::kF32);
          Tensor d_scores = weights * (d_weights - expand(delta, -1));
          if (options.softcap > 0) {
            const Tensor share = scores.capped * (1 / options.softcap);
            d_scores = d_scores * (1.0 - share * share);
          }
          const Tensor d_products = convert(d_scores * options.scale, q.dtype());
          Tensor dq = dot_general(
              d_products, keys.values[0],
              {.lhs_batching = {0, 1, 2}, .rhs_batching = {0, 1, 2}, .lhs_contracting = {5}, .rhs_contracting = {3}},
              DType::kF32);
          if (begun) dq = dq + x[6];
          const DotDims over_queries{.lhs_batching = {0, 1, 2},
                                     .rhs_batching = {0, 1, 2},
                                     .lhs_contracting = {3, 4},
                                     .rhs_contracting = {3, 4}};
          return {{carries[0] + dot_general(d_products, q, over_queries, DType::kF32),
                   carries[1] + dot_general(convert(weights, q.dtype()), d_out, over_queries, DType::kF32)},
                  {dq}};
        });
    queries.sums = out.ys;
    keys.sums = out.carries;
  };
}

// Returns the options with the window and the sinks from the operands of Ring::attend. The window and the sinks begin
// at index `first` of `operands`.
AttentionOptions with_operands(AttentionOptions options, const Tensors& operands, size_t first) {
  if (options.window) options.window = operands[first++];
  if (options.sinks_N) options.sinks_N = operands[first];
  return options;
}

// Returns the sinks as f32, broadcast to the dims [M, B, D, K, T, G] of `like`.
Tensor sinks_like(const Tensor& sinks_N, const Tensor& like) {
  return broadcast_to(reshape(convert(sinks_N, DType::kF32), {1, 1, 1, like.dim(3), 1, like.dim(5)}), like.dims());
}

// Returns the gradient for each operand of the node. The operands are the result, the operands of Ring::attend, and the
// log-sum-exp.
Tensors gradients(const Ring& ring, const VjpArgs& args) {
  const Tensors operands(args.operands.begin() + 1, args.operands.end() - 1);
  const AttentionOptions options = with_operands(ring.options, operands, 5);
  const Tensor &log_sum = args.operands.back(), &d_out = args.cotangents[0];
  const Tensor delta = reduce_sum(convert(d_out, DType::kF32) * convert(args.results[0], DType::kF32), {-1});
  Turns turns(ring, operands);
  for (const Tensor& x : {d_out, log_sum, delta}) turns.add_query_value(x);
  turns.run(meet_backward(options), true);
  Tensors out(args.operands.size());
  out[1] = convert(turns.query_sum(0), operands[0].dtype());
  for (size_t i = 0; i < 2; ++i) out[2 + i] = convert(turns.key_sum(i), operands[1 + i].dtype());
  if (options.sinks_N) {
    const Tensor each = exp(sinks_like(options.sinks_N, log_sum) - log_sum) * delta;
    const Tensor sum_KG = -reduce_sum(each, {0, 1, 2, 4});
    out[out.size() - 2] = convert(reshape(sum_KG, options.sinks_N.dims()), options.sinks_N.dtype());
  }
  return out;
}

}  // namespace

Tensor Ring::attend(const std::vector<Tensor>& operands) const {
  const AttentionOptions own = with_operands(options, operands, 5);
  Turns turns(*this, operands);
  turns.run(meet_forward(own), false);
  Tensor sum = turns.query_sum(0), top = turns.query_sum(1), total = turns.query_sum(2);
  if (own.sinks_N) {
    const Tensor sinks = sinks_like(own.sinks_N, top), higher = maximum(top, sinks), kept = exp(top - higher);
    sum = sum * expand(kept, -1);
    total = total * kept + exp(sinks - higher);
    top = higher;
  }
  const Tensor out = convert(sum / expand(total, -1), operands[0].dtype());
  Tensors inputs = operands;
  inputs.push_back(stop_gradient(top + log(total)));
  return custom_gradient(stop_gradient(out), inputs,
                         GradientRule{[ring = *this](const VjpArgs& args) { return gradients(ring, args); }});
}

}  // namespace fettle
