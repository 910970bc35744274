#include "kernels/cpu/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/task_row.h"

namespace fettle::cpu {
namespace {

// The number of rows of a block is rounded up to a multiple of this number: a tile of AMX has 16 rows.
constexpr int64_t kRowStep = 16;

// Packed keys and values of all rows and key heads: transposed blocks of keys, then blocks of values.
struct Packed {
  Packed(const AttentionProblem& p, const PackedSizes& s, Word* words)
      : sizes(s), heads(p.key_heads), keys(words), values(words + p.rows * p.key_heads * s.blocks * s.across_block()) {}
  Word* keys_of(int64_t row, int64_t head, int64_t block) const {
    return keys + ((row * heads + head) * sizes.blocks + block) * sizes.across_block();
  }
  Word* values_of(int64_t row, int64_t head, int64_t block) const {
    return values + ((row * heads + head) * sizes.blocks + block) * sizes.down_block();
  }
  const PackedSizes& sizes;
  int64_t heads;
  Word *keys, *values;
};

void pack(const BlockOps& ops, const AttentionProblem& p, const Packed& packed, int64_t row, int64_t head,
          int64_t block) {
  const PackedSizes& s = packed.sizes;
  const int64_t start = block * kBlock, present = std::min(kBlock, p.filled() - start);
  const int64_t from = key_offset(p, row, start, head), stride = p.key_heads * p.width;
  Word* across = thread_words(s.across_block());
  ops.pack_across(at(p.k, p.dtype, from), p.dtype, stride, present, p.width, kBlock, s.across, across);
  ops.transpose(across, kBlock, s.across, packed.keys_of(row, head, block));
  ops.pack_down(at(p.v, p.dtype, from), p.dtype, stride, present, p.width, kBlock, s.width,
                packed.values_of(row, head, block));
}

void attend(const BlockOps& ops, const AttentionProblem& p, const BlockSegments& segments, const Packed& packed,
            int64_t row, int64_t head, int64_t block, void* o, float* log_sum) {
  const PackedSizes& s = packed.sizes;
  const int64_t start = block * kBlock, present = std::min(kBlock, p.length - start);
  const int64_t rows = (present + kRowStep - 1) / kRowStep * kRowStep;
  const int64_t key_head = head / (p.heads / p.key_heads), stride = p.heads * p.width;
  Word* queries = thread_words(s.across_block() + kBlock * (kBlock + s.width));
  float* scores = &queries[s.across_block()].f32;
  float* out = scores + kBlock * kBlock;
  ops.pack_across(at(p.q, p.dtype, query_offset(p, row, start, head)), p.dtype, stride, present, p.width, rows,
                  s.across, queries);
  float top[kBlock], sum[kBlock * kSumLanes], correction[kBlock];
  std::fill_n(top, kBlock, kLowest);
  std::fill_n(sum, kBlock * kSumLanes, 0.0F);
  const bool round = p.dtype == DType::kBF16;
  Visibility seen;
  bool first = true;
  const BlockRange range = key_blocks(p, block);
  for (int64_t j = range.first; j <= range.last; ++j) {
    look(p, segments, row, block, j, seen);
    if (!seen.any) continue;
    ops.product(rows, kBlock, s.across, queries, s.across, false, packed.keys_of(row, key_head, j), kBlock, scores,
                kBlock, false);
    seen.mask.rows = rows;
    seen.mask.scores = scores;
    seen.mask.row_words = kBlock;
    seen.mask.slope = p.slopes == nullptr ? 0 : p.slopes[head];
    const bool corrected = ops.softmax(seen.mask, {top, sum, correction}, round);
    if (corrected && !first) ops.scale_rows(out, rows, s.width, s.width, correction);
    ops.product(rows, s.width, s.down, reinterpret_cast<const Word*>(scores), kBlock, false,
                packed.values_of(row, key_head, j), s.width, out, s.width, !first);
    first = false;
  }
  float* logs = log_sum == nullptr ? nullptr : log_sum + (row * p.heads + head) * p.length + start;
  for (int64_t r = 0; r < present; ++r) {
    float all = 0;
    for (int64_t i = 0; i < kSumLanes; ++i) all += sum[r * kSumLanes + i];
    correction[r] = 1 / all;
    if (logs != nullptr) logs[r] = top[r] + std::log(all);
  }
  ops.store_rows(out, s.width, correction, present, p.width, p.dtype, stride,
                 at(o, p.dtype, query_offset(p, row, start, head)));
}

}  // namespace

int64_t attention_workspace(const AttentionProblem& p) {
  const PackedSizes s = packed_sizes(p, false);
  return 4 * p.rows * p.key_heads * s.blocks * (s.across_block() + s.down_block());
}

void attention(const AttentionProblem& p, void* o, float* log_sum, void* workspace, const ParallelFor& parallel) {
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(p.dtype);
  const PackedSizes s = packed_sizes(p, ops.pairs);
  const BlockSegments segments(p);
  const Packed packed(p, s, static_cast<Word*>(workspace));
  const int64_t query_blocks = query_block_count(p);
  const int64_t low = key_blocks(p, 0).first, count = key_blocks(p, query_blocks - 1).last - low + 1;
  TaskRow tasks;
  const TaskRow::Group packing = tasks.add(p.rows * p.key_heads * count, [&](int64_t i) {
    pack(ops, p, packed, i / count / p.key_heads, i / count % p.key_heads, low + i % count);
  });
  // The last blocks of queries see the most keys, so they start first.
  const int64_t all_heads = p.rows * p.heads;
  auto attend_block = [&](int64_t i) {
    const int64_t head = i % all_heads;
    attend(ops, p, segments, packed, head / p.heads, head % p.heads, query_blocks - 1 - i / all_heads, o, log_sum);
  };
  tasks.add(all_heads * query_blocks, attend_block, packing);
  tasks.run(parallel);
}

}  // namespace fettle::cpu
