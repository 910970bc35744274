#include "kernels/cpu/attention/next_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

// A task computes this many keys of one row and one key head, so that a single row also keeps several threads busy. The
// borders between tasks depend only on this number.
constexpr int64_t kTaskKeys = 256;

int64_t parts_of(const NextAttention& p) {
  return (p.keys + kTaskKeys - 1) / kTaskKeys;
}

// The keys that the query of a row sees: from `first` to `position`.
struct Seen {
  int64_t first, position;
};

Seen seen_by(const NextAttention& p, int64_t row) {
  Seen out{0, std::clamp<int64_t>(p.filled[row], 0, p.keys - 1)};
  if (p.window > 0) out.first = std::max(out.first, out.position - p.window + 1);
  if (p.chunk > 0) out.first = std::max(out.first, out.position / p.chunk * p.chunk);
  return out;
}

// The results of the tasks, for each row, task of a row and query head.
struct Partial {
  Partial(const NextAttention& p, void* workspace)
      : parts(parts_of(p)),
        heads(p.heads),
        width(p.width),
        top(static_cast<float*>(workspace)),
        sum(top + p.rows * parts * heads),
        out(sum + p.rows * parts * heads) {}
  int64_t at(int64_t row, int64_t part, int64_t head) const { return (row * parts + part) * heads + head; }

  int64_t parts, heads, width;
  float *top, *sum, *out;
};

void attend_part(const BlockOps& ops, const NextAttention& p, const Partial& partial, int64_t row, int64_t key_head,
                 int64_t part) {
  const Seen seen = seen_by(p, row);
  const int64_t first = std::max(seen.first, part * kTaskKeys),
                last = std::min(seen.position + 1, (part + 1) * kTaskKeys);
  const int64_t group = p.heads / p.key_heads, head = key_head * group, result = partial.at(row, part, head);
  if (first >= last) {
    std::fill_n(partial.sum + result, group, 0.0F);
    return;
  }
  const int64_t keys = (row * p.keys * p.key_heads + key_head) * p.width;
  const QueryKeys problem{.q = at(p.q, p.dtype, (row * p.heads + head) * p.width),
                          .k = at(p.k, p.dtype, keys),
                          .v = at(p.v, p.dtype, keys),
                          .dtype = p.dtype,
                          .heads = group,
                          .width = p.width,
                          .stride = p.key_heads * p.width,
                          .first = first,
                          .last = last,
                          .scale = p.scale,
                          .softcap = p.softcap,
                          .slopes = p.slopes == nullptr ? nullptr : p.slopes + head,
                          .position = seen.position};
  float* const scores = &thread_words(group * kTaskKeys)->f32;
  ops.attend_one(problem, scores, partial.top + result, partial.sum + result, partial.out + result * p.width);
}

// Adds up the parts `low` to `high` - 1 of a head's result. Leaves out parts whose keys the query does not see; their
// sums are 0.
void combine(const BlockOps& ops, const NextAttention& p, const Partial& partial, int64_t row, int64_t head,
             int64_t low, int64_t high, void* o) {
  float top = kLowest, sum = 0;
  for (int64_t i = low; i < high; ++i)
    if (const int64_t at = partial.at(row, i, head); partial.sum[at] > 0) top = std::max(top, partial.top[at]);
  float* const out = &thread_words(p.width)->f32;
  std::fill_n(out, p.width, 0.0F);
  for (int64_t i = low; i < high; ++i) {
    const int64_t from = partial.at(row, i, head);
    if (partial.sum[from] == 0) continue;
    const float factor = std::exp(partial.top[from] - top);
    sum += factor * partial.sum[from];
    for (int64_t h = 0; h < p.width; ++h) out[h] += factor * partial.out[from * p.width + h];
  }
  const float factor = 1 / sum;
  ops.store_rows(out, p.width, &factor, 1, p.width, p.dtype, p.width, at(o, p.dtype, (row * p.heads + head) * p.width));
}

}  // namespace

int64_t next_attention_workspace(const NextAttention& p) {
  return 4 * p.rows * parts_of(p) * p.heads * (p.width + 2);
}

void attend_next(const NextAttention& p, void* o, void* workspace, const ParallelFor& parallel) {
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(p.dtype);
  const Partial partial(p, workspace);
  int64_t low = partial.parts, high = 0;  // the parts that a row sees
  for (int64_t row = 0; row < p.rows; ++row) {
    const Seen seen = seen_by(p, row);
    low = std::min(low, seen.first / kTaskKeys);
    high = std::max(high, seen.position / kTaskKeys + 1);
  }
  const int64_t count = high - low;
  parallel(p.rows * p.key_heads * count, [&](int64_t i) {
    attend_part(ops, p, partial, i / count / p.key_heads, i / count % p.key_heads, low + i % count);
  });
  for (int64_t row = 0; row < p.rows; ++row)
    for (int64_t head = 0; head < p.heads; ++head) combine(ops, p, partial, row, head, low, high, o);
}

int64_t next_attention_flops(const NextAttention& p) {
  return 4 * p.rows * p.heads * p.keys * p.width;
}

}  // namespace fettle::cpu
