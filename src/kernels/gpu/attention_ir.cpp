#include "kernels/gpu/attention_ir.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numbers>

#include "kernels/gpu/triton.h"

namespace fettle::gpu {
namespace {

using Values = TritonIr::Values;

// Scores are multiplied by this number, so that a weight is exp2 of a score: the devices compute exp2, not exp.
constexpr double kLog2E = std::numbers::log2e;
// The score of a masked pair. It is below every other score. It is finite, because all pairs of a query in a block may
// be masked, and the difference of two infinite scores would be NaN. As long as all pairs of a query are masked, each
// pair gets the weight 1. The first block with a pair that the query sees multiplies the sums of these weights by the
// correction 0.
constexpr double kMasked = -1e30;

std::vector<std::string> pointers(const AttentionShape& s, bool gradient, const std::vector<std::string>& results) {
  const std::string type = triton_element(s.dtype);
  std::vector<std::string> out{type, type, type, "i32", "i32"};
  if (s.window < 0) out.emplace_back("i32");
  if (s.slopes) out.emplace_back("f32");
  if (gradient) out.insert(out.end(), {type, "f32", "f32"});
  out.insert(out.end(), results.begin(), results.end());
  return out;
}

// A block of positions: of queries or of keys.
struct Positions {
  TritonValue first;     // i32 scalar
  int64_t count = 0;     // the block's size
  int64_t axis = 0;      // the dim of the scores along which these positions lie
  TritonValue index;     // i32, with a dim of size 1 for the other positions: [count, 1] or [1, count]
  TritonValue segments;  // like `index`

  TritonValue along(const TritonValue& values) const { return expand(values, 1 - axis); }
};

struct Scores {
  TritonValue logits;  // f32: score * log2(e), because weights are computed by exp2
  TritonValue capped;  // tanh of the score over the cap; null without a cap
};

class AttentionIr {
 public:
  AttentionIr(const std::string& name, const AttentionShape& s, const AttentionTiles& tiles, bool gradient,
              const std::vector<std::string>& results)
      : s_(s),
        tiles_(tiles),
        ir_(name, pointers(s, gradient, results)),
        block_(ir_.program_id('x')),
        head_(ir_.program_id('y')),
        row_(convert(ir_.program_id('z'), "i64")) {
    size_t next = kBounds + 1;
    if (s.window < 0) window_ = ir_.load(ir_.argument(next++), ir_.constant(0, "i32"));
    if (s.window > 0) window_ = ir_.constant(static_cast<double>(s.window), "i32");
    if (s.slopes) slopes_ = ir_.argument(next++);
    if (gradient)
      d_o_ = ir_.argument(next), log_sum_ = ir_.argument(next + 1), dots_ = ir_.argument(next + 2), next += 3;
    result_ = next;
  }

  void forward();
  void query_gradient();
  void key_gradient();
  std::string text() const { return ir_.text(); }

 private:
  enum Argument : size_t { kQ, kK, kV, kSegments, kBounds };

  TritonValue number(int64_t value) { return ir_.constant(static_cast<double>(value), "i32"); }
  std::string element() const { return triton_element(s_.dtype); }
  int64_t group() const { return s_.heads / s_.key_heads; }  // number of query heads that share a key head

  // Returns a mask [count] of the block's positions that exist, or null if all exist.
  TritonValue present(const Positions& at) {
    if (s_.length % at.count == 0) return {};
    return compare(ir_.range(at.count) + at.first, "slt", number(s_.length));
  }

  Positions positions(const TritonValue& block, int64_t count, int64_t axis) {
    Positions at{.first = block * static_cast<double>(count), .count = count, .axis = axis};
    at.index = at.along(ir_.range(count) + at.first);
    const TritonValue start = row_ * static_cast<double>(s_.length) + convert(at.first, "i64");
    at.segments = at.along(ir_.load(at_offset(ir_.argument(kSegments), start), ir_.range(count), present(at)));
    return at;
  }

  TritonValue at_offset(const TritonValue& pointer, const TritonValue& offset) {
    return ir_.append("tt.addptr " + pointer.name + ", " + offset.name + " : " + pointer.type.text() + ", i64",
                      pointer.type);
  }

  // The addresses of a block of rows in an array [B, T, heads, H]. Offsets of elements within the block fit into 32
  // bits.
  struct Rows {
    TritonValue pointer, offsets, mask;
  };
  Rows rows(const TritonValue& array, int64_t heads, const TritonValue& head, const Positions& at) {
    const int64_t padded = s_.padded_width(), stride = heads * s_.width;
    const TritonValue start =
        (row_ * static_cast<double>(s_.length) + convert(at.first, "i64")) * static_cast<double>(stride) +
        convert(head, "i64") * static_cast<double>(s_.width);
    const TritonValue columns = expand(ir_.range(padded), 0);
    Rows out{at_offset(array, start), expand(ir_.range(at.count), 1) * static_cast<double>(stride) + columns, {}};
    if (const TritonValue exists = present(at); exists.ir != nullptr) out.mask = expand(exists, 1);
    if (padded != s_.width) {
      const TritonValue used = compare(columns, "slt", number(s_.width));
      out.mask = out.mask.ir == nullptr ? used : out.mask & used;
    }
    return out;
  }
  TritonValue load(const Rows& from) { return ir_.load(from.pointer, from.offsets, from.mask); }
  TritonValue queries(const TritonValue& array, const TritonValue& head, const Positions& at) {
    return load(rows(array, s_.heads, head, at));
  }
  TritonValue keys(Argument array, const TritonValue& key_head, const Positions& at) {
    return load(rows(ir_.argument(array), s_.key_heads, key_head, at));
  }
  void store(const TritonValue& array, int64_t heads, const Positions& at, const TritonValue& value) {
    const Rows to = rows(array, heads, head_, at);
    ir_.store(to.pointer, to.offsets, value, to.mask);
  }

  // Returns a pointer to a block of queries in an array [B, N, T].
  TritonValue per_query(const TritonValue& array, const TritonValue& head, const Positions& at) {
    return at_offset(array,
                     (row_ * static_cast<double>(s_.heads) + convert(head, "i64")) * static_cast<double>(s_.length) +
                         convert(at.first, "i64"));
  }
  TritonValue load_per_query(const TritonValue& array, const TritonValue& head, const Positions& at) {
    return at.along(ir_.load(per_query(array, head, at), ir_.range(at.count), present(at)));
  }

  // Returns the scores from the products of queries and keys.
  Scores scores(const TritonValue& products, const Positions& q, const Positions& k, const TritonValue& head,
                bool masked) {
    Scores out;
    if (s_.softcap > 0) {
      // tanh(x) = 1 - 2 / (1 + exp(2 x)). This formula gives 1 or -1, and not NaN, for large |x|.
      const TritonValue power = exp2(products * (2 * kLog2E * s_.scale / s_.softcap)) + 1.0;
      out.capped = 1.0 - ir_.constant(2, "f32") / power;
      out.logits = out.capped * (kLog2E * s_.softcap);
    } else {
      out.logits = products * (kLog2E * s_.scale);
    }
    if (s_.slopes) {
      const TritonValue slope = ir_.load(slopes_, head) * kLog2E;
      out.logits = out.logits - convert(q.index - k.index, "f32") * slope;
    }
    if (!masked) return out;
    TritonValue seen = compare(q.segments, "eq", k.segments);
    if (s_.causal) seen = seen & compare(k.index, "sle", q.index);
    if (window_.ir != nullptr) seen = seen & compare(q.index - k.index, "slt", window_);
    if (s_.length % q.count != 0) seen = seen & compare(q.index, "slt", number(s_.length));
    if (s_.length % k.count != 0) seen = seen & compare(k.index, "slt", number(s_.length));
    out.logits = select(seen, out.logits, kMasked);
    return out;
  }

  // Runs `body` for each of `times` heads and for each block that this instance sees. First runs it for the blocks in
  // which every pair is seen, then, with masks, for the other blocks.
  using Body = std::function<Values(const TritonValue& head_in_group, const TritonValue& block, const Values& carried,
                                    bool masked)>;
  Values loop_over_blocks(int64_t blocks, int64_t times, const Values& start, const Body& body) {
    const TritonValue at = (row_ * static_cast<double>(blocks) + convert(block_, "i64")) * 4.0;
    const TritonValue pointer = at_offset(ir_.argument(kBounds), at);
    auto bound = [&](int64_t i) { return ir_.load(pointer, number(i)); };
    const TritonValue first = bound(0), whole_first = bound(1), whole_end = bound(2), end = bound(3);
    const TritonValue whole = whole_end - whole_first, before = whole_first - first;
    const TritonValue partial = before + (end - whole_end);
    auto run = [&](const TritonValue& count, const Values& carried, bool masked, auto block_of) {
      return ir_.loop(count * static_cast<double>(times), carried, [&](const TritonValue& i, const Values& now) {
        if (times == 1) return body(number(0), block_of(i), now, masked);
        return body(i / count, block_of(i % count), now, masked);
      });
    };
    const Values seen = run(whole, start, false, [&](const TritonValue& i) { return whole_first + i; });
    return run(partial, seen, true, [&](const TritonValue& i) {
      return select(compare(i, "slt", before), first + i, whole_end + (i - before));
    });
  }

  TritonValue zeros(Dims dims) { return ir_.constant(0, TritonType{"f32", std::move(dims)}); }

  AttentionShape s_;
  AttentionTiles tiles_;
  TritonIr ir_;
  TritonValue block_, head_, row_;
  TritonValue window_, slopes_, d_o_, log_sum_, dots_;  // null: the kernel does not use it
  size_t result_ = 0;                                   // index of the first result among the arguments
};

void AttentionIr::forward() {
  const int64_t padded = s_.padded_width();
  const TritonValue key_head = head_ / number(group());
  // The last blocks see the most keys under a causal mask, so they start first.
  block_ = number(blocks_of(s_.length, tiles_.queries) - 1) - block_;
  const Positions q = positions(block_, tiles_.queries, 0);
  const TritonValue q_rows = queries(ir_.argument(kQ), head_, q);
  const Values start{zeros({tiles_.queries, padded}), ir_.constant(kMasked, TritonType{"f32", {tiles_.queries}}),
                     zeros({tiles_.queries})};
  const Values done = loop_over_blocks(
      blocks_of(s_.length, tiles_.queries), 1, start,
      [&](const TritonValue&, const TritonValue& block, const Values& now, bool masked) -> Values {
        const Positions k = positions(block, tiles_.keys, 1);
        const TritonValue products =
            dot(q_rows, transpose(keys(kK, key_head, k)), zeros({tiles_.queries, tiles_.keys}));
        const TritonValue logits = scores(products, q, k, head_, masked).logits;
        const TritonValue top = maximum(now[1], row_max(logits));
        const TritonValue weights = exp2(logits - q.along(top)), correction = exp2(now[1] - top);
        const TritonValue sum = now[2] * correction + row_sum(weights);
        const TritonValue mixed = dot(convert(weights, element()), keys(kV, key_head, k), now[0] * q.along(correction));
        return {mixed, top, sum};
      });
  store(ir_.argument(result_), s_.heads, q, done[0] / q.along(done[2]));
  ir_.store(per_query(ir_.argument(result_ + 1), head_, q), ir_.range(q.count), done[1] + log2(done[2]), present(q));
}

void AttentionIr::query_gradient() {
  const TritonValue key_head = head_ / number(group());
  block_ = number(blocks_of(s_.length, tiles_.queries) - 1) - block_;
  const Positions q = positions(block_, tiles_.queries, 0);
  const TritonValue q_rows = queries(ir_.argument(kQ), head_, q), d_o = queries(d_o_, head_, q);
  const TritonValue log_sum = load_per_query(log_sum_, head_, q), dots = load_per_query(dots_, head_, q);
  const Values done =
      loop_over_blocks(blocks_of(s_.length, tiles_.queries), 1, {zeros({tiles_.queries, s_.padded_width()})},
                       [&](const TritonValue&, const TritonValue& block, const Values& now, bool masked) -> Values {
                         const Positions k = positions(block, tiles_.keys, 1);
                         const TritonValue k_rows = keys(kK, key_head, k), none = zeros({tiles_.queries, tiles_.keys});
                         const Scores found = scores(dot(q_rows, transpose(k_rows), none), q, k, head_, masked);
                         const TritonValue weights = exp2(found.logits - log_sum);
                         const TritonValue d_weights = dot(d_o, transpose(keys(kV, key_head, k)), none);
                         TritonValue change = weights * (d_weights - dots);
                         if (s_.softcap > 0) change = change * (1.0 - found.capped * found.capped);
                         return {dot(convert(change, element()), k_rows, now[0])};
                       });
  store(ir_.argument(result_), s_.heads, q, done[0] * s_.scale);
}

// Computes the scores transposed, as [keys, queries]. So the weights and their gradients can be multiplied by d_o and q
// without a transposition.
void AttentionIr::key_gradient() {
  const Positions k = positions(block_, tiles_.keys, 0);
  const TritonValue k_rows = keys(kK, head_, k), v_rows = keys(kV, head_, k);
  const TritonValue start = zeros({tiles_.keys, s_.padded_width()});
  const Values done = loop_over_blocks(
      blocks_of(s_.length, tiles_.keys), group(), {start, start},
      [&](const TritonValue& head_in_group, const TritonValue& block, const Values& now, bool masked) -> Values {
        const TritonValue head = head_ * static_cast<double>(group()) + head_in_group;
        const Positions q = positions(block, tiles_.queries, 1);
        const TritonValue q_rows = queries(ir_.argument(kQ), head, q), d_o = queries(d_o_, head, q);
        const TritonValue log_sum = load_per_query(log_sum_, head, q), dots = load_per_query(dots_, head, q);
        const TritonValue none = zeros({tiles_.keys, tiles_.queries});
        const Scores found = scores(dot(k_rows, transpose(q_rows), none), q, k, head, masked);
        const TritonValue weights = exp2(found.logits - log_sum);
        const TritonValue d_v = dot(convert(weights, element()), d_o, now[1]);
        const TritonValue d_weights = dot(v_rows, transpose(d_o), none);
        TritonValue change = weights * (d_weights - dots);
        if (s_.softcap > 0) change = change * (1.0 - found.capped * found.capped);
        return {dot(convert(change, element()), q_rows, now[0]), d_v};
      });
  store(ir_.argument(result_), s_.key_heads, k, done[0] * s_.scale);
  store(ir_.argument(result_ + 1), s_.key_heads, k, done[1]);
}

}  // namespace

int64_t blocks_of(int64_t length, int64_t block) {
  return (length + block - 1) / block;
}

int64_t AttentionShape::padded_width() const {
  constexpr int64_t kLeast = 16;  // tensor cores multiply at least 16 numbers at once
  return std::max(kLeast, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(width))));
}

std::string attention_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles) {
  AttentionIr out(name, shape, tiles, false, {triton_element(shape.dtype), "f32"});
  out.forward();
  return out.text();
}

std::string query_gradient_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles) {
  AttentionIr out(name, shape, tiles, true, {triton_element(shape.dtype)});
  out.query_gradient();
  return out.text();
}

std::string key_gradient_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles) {
  AttentionIr out(name, shape, tiles, true, {triton_element(shape.dtype), triton_element(shape.dtype)});
  out.key_gradient();
  return out.text();
}

}  // namespace fettle::gpu
