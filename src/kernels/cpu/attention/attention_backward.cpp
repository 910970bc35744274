// A task handles one query head and one range of key blocks (a "part"). It computes what the head adds to the gradients
// of the keys and values in this range, and what the part adds to the gradients of the head's queries. Each task writes
// to arrays of its own. Afterwards, the gradients of queries are summed over the parts. The gradients of keys and
// values are summed over the heads that share them. All sums have a fixed order.
#include <algorithm>
#include <limits>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/task_row.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kTasks = 32;  // the smallest number of tasks, if there are enough blocks

int64_t part_count(const AttentionProblem& p, const PackedSizes& s) {
  const int64_t wanted = (kTasks + p.rows * p.heads - 1) / (p.rows * p.heads);
  return std::clamp<int64_t>(wanted, 1, s.blocks);
}

// The layout of the workspace. An array per head has the dims [B, N, ...]. An array per key head has the dims
// [B, K, ...]. Sizes count Words.
class Workspace {
 public:
  Workspace(const AttentionProblem& p, const PackedSizes& s, Word* base)
      : sizes(s), parts(part_count(p, s)), heads_(p.rows * p.heads) {
    const int64_t key_heads = p.rows * p.key_heads;
    auto take = [&](int64_t words) {
      Word* out = base + used;
      used += words;
      return out;
    };
    queries = take(heads_ * s.blocks * s.across_block());
    d_out = take(heads_ * s.blocks * s.across_block());
    // In f32, packing across and packing down give the same rows, so one array serves for both.
    const bool apart = s.across != s.width;
    queries_down = apart ? take(heads_ * s.blocks * s.down_block()) : queries;
    d_out_down = apart ? take(heads_ * s.blocks * s.down_block()) : d_out;
    keys = take(key_heads * s.blocks * s.across_block());
    values = take(key_heads * s.blocks * s.across_block());
    keys_down = take(key_heads * s.blocks * s.down_block());
    dots = &take(heads_ * s.padded)->f32;
    logs = &take(heads_ * s.padded)->f32;
    d_queries = &take(heads_ * s.padded * s.width * parts)->f32;
    d_keys = &take(heads_ * s.padded * s.width)->f32;
    d_values = &take(heads_ * s.padded * s.width)->f32;
  }

  // Returns block number `block` of head `head`; heads are numbered over all rows of the batch.
  Word* across(Word* base, int64_t head, int64_t block) const {
    return base + (head * sizes.blocks + block) * sizes.across_block();
  }
  Word* down(Word* base, int64_t head, int64_t block) const {
    return base + (head * sizes.blocks + block) * sizes.down_block();
  }
  float* rows(float* base, int64_t head, int64_t block) const {
    return base + (head * sizes.padded + block * kBlock) * sizes.width;
  }
  float* d_queries_of(int64_t part, int64_t head, int64_t block) const {
    return rows(d_queries, part * heads_ + head, block);
  }

  const PackedSizes& sizes;
  int64_t parts, used = 0;
  Word *queries, *queries_down, *d_out, *d_out_down;  // [head, block]
  Word *keys, *values, *keys_down;                    // [key head, block]; `keys` and `values` are transposed
  float *dots, *logs;                                 // [head, padded]
  float *d_queries, *d_keys, *d_values;               // [head, padded, width]; d_queries: [part, head, padded, width]

 private:
  int64_t heads_;
};

struct Gradients {
  const void *o, *d_o;
  const float* log_sum;
  void *dq, *dk, *dv;
};

class Backward {
 public:
  Backward(const AttentionProblem& problem, const Gradients& gradients, void* workspace)
      : p_(problem),
        g_(gradients),
        ops_(p_.ops != nullptr ? *p_.ops : block_ops(p_.dtype)),
        s_(packed_sizes(p_, ops_.pairs)),
        w_(p_, s_, static_cast<Word*>(workspace)),
        segments_(p_) {}

  void run(const ParallelFor& parallel) const {
    const int64_t heads = p_.rows * p_.heads, key_heads = p_.rows * p_.key_heads;
    const int64_t blocks = (heads + key_heads) * s_.blocks;
    auto pack = [&](int64_t i) {
      const int64_t head = i / s_.blocks, block = i % s_.blocks;
      head < heads ? pack_queries(head, block) : pack_keys(head - heads, block);
    };
    auto store = [&](int64_t i) {
      const int64_t head = i / s_.blocks, block = i % s_.blocks;
      head < heads ? store_queries(head, block) : store_keys(head - heads, block);
    };
    auto differentiate_part = [&](int64_t i) { differentiate(i % heads, i / heads); };
    TaskRow tasks;
    const TaskRow::Group packing = tasks.add(blocks, pack);
    const TaskRow::Group gradients = tasks.add(heads * w_.parts, differentiate_part, packing);
    tasks.add(blocks, store, gradients);
    tasks.run(parallel);
  }

 private:
  int64_t present(int64_t block) const { return std::min(kBlock, p_.length - block * kBlock); }
  int64_t query_offset(int64_t head, int64_t block) const {
    return cpu::query_offset(p_, head / p_.heads, block * kBlock, head % p_.heads);
  }
  int64_t key_offset(int64_t key_head, int64_t block) const {
    return cpu::key_offset(p_, key_head / p_.key_heads, block * kBlock, key_head % p_.key_heads);
  }
  int64_t key_head_of(int64_t head) const {
    return head / p_.heads * p_.key_heads + head % p_.heads / (p_.heads / p_.key_heads);
  }
  // Returns the first block of a part. For `part` = number of parts, returns the end of the last part.
  int64_t first_block(int64_t part) const { return part * s_.blocks / w_.parts; }

  void pack_queries(int64_t head, int64_t block) const {
    const int64_t from = query_offset(head, block), stride = p_.heads * p_.width, rows = present(block);
    auto pack = [&](const void* base, Word* across, Word* down) {
      const void* source = at(base, p_.dtype, from);
      ops_.pack_across(source, p_.dtype, stride, rows, p_.width, kBlock, s_.across, w_.across(across, head, block));
      if (down != across)
        ops_.pack_down(source, p_.dtype, stride, rows, p_.width, kBlock, s_.width, w_.down(down, head, block));
    };
    pack(p_.q, w_.queries, w_.queries_down);
    pack(g_.d_o, w_.d_out, w_.d_out_down);
    float* dots = w_.dots + head * s_.padded + block * kBlock;
    float* logs = w_.logs + head * s_.padded + block * kBlock;
    ops_.row_dots(at(g_.o, p_.dtype, from), at(g_.d_o, p_.dtype, from), p_.dtype, stride, rows, p_.width, dots);
    std::copy_n(g_.log_sum + head * p_.length + block * kBlock, rows, logs);
    // Fills the missing rows of the block with values that make the weights of these rows 0.
    std::fill(dots + rows, dots + kBlock, 0.0F);
    std::fill(logs + rows, logs + kBlock, std::numeric_limits<float>::max());
  }

  void pack_keys(int64_t head, int64_t block) const {
    const int64_t from = key_offset(head, block), stride = p_.key_heads * p_.width, rows = present(block);
    Word* across = thread_words(s_.across_block());
    for (const auto& [source, to] : {std::pair{p_.k, w_.keys}, std::pair{p_.v, w_.values}}) {
      ops_.pack_across(at(source, p_.dtype, from), p_.dtype, stride, rows, p_.width, kBlock, s_.across, across);
      ops_.transpose(across, kBlock, s_.across, w_.across(to, head, block));
    }
    ops_.pack_down(at(p_.k, p_.dtype, from), p_.dtype, stride, rows, p_.width, kBlock, s_.width,
                   w_.down(w_.keys_down, head, block));
  }

  void differentiate(int64_t head, int64_t part) const {
    const int64_t first = first_block(part), end = first_block(part + 1);
    float* d_queries = w_.d_queries_of(part, head, 0);
    std::fill_n(d_queries, s_.padded * s_.width, 0.0F);
    for (int64_t block = first; block < end; ++block) differentiate_keys(head, part, block);
  }

  void differentiate_keys(int64_t head, int64_t part, int64_t block) const {
    const int64_t row = head / p_.heads, key_head = key_head_of(head);
    float *d_keys = w_.rows(w_.d_keys, head, block), *d_values = w_.rows(w_.d_values, head, block);
    std::fill_n(d_keys, kBlock * s_.width, 0.0F);
    std::fill_n(d_values, kBlock * s_.width, 0.0F);
    float* scores = &thread_words(3 * kBlock * kBlock)->f32;
    float* weights = scores + kBlock * kBlock;
    Word* apart = reinterpret_cast<Word*>(weights + kBlock * kBlock);
    const Word* score_words = reinterpret_cast<const Word*>(scores);
    const Word* weight_words = reinterpret_cast<const Word*>(weights);
    // With pairs, softmax_gradient() writes the gradients of the scores to `apart`, packed across. It also writes the
    // gradients and the weights, packed down, to every second row of `scores` and `weights`.
    const Word* across = ops_.pairs ? apart : score_words;
    const int64_t across_row = ops_.pairs ? kBlock / 2 : kBlock, down_row = ops_.pairs ? 2 * kBlock : kBlock;
    const bool round = p_.dtype == DType::kBF16;
    Visibility seen;
    const BlockRange range = query_blocks(p_, s_.blocks, block);
    for (int64_t i = range.first; i <= range.last; ++i) {
      look(p_, segments_, row, i, block, seen);
      if (!seen.any) continue;
      ops_.product(kBlock, kBlock, s_.across, w_.across(w_.queries, head, i), s_.across, false,
                   w_.across(w_.keys, key_head, block), kBlock, scores, kBlock, false);
      ops_.product(kBlock, kBlock, s_.across, w_.across(w_.d_out, head, i), s_.across, false,
                   w_.across(w_.values, key_head, block), kBlock, weights, kBlock, false);
      seen.mask.scores = scores;
      seen.mask.row_words = kBlock;
      seen.mask.slope = p_.slopes == nullptr ? 0 : p_.slopes[head % p_.heads];
      ops_.softmax_gradient(seen.mask, w_.logs + head * s_.padded + i * kBlock, w_.dots + head * s_.padded + i * kBlock,
                            weights, apart, round);
      ops_.product(kBlock, s_.width, s_.down, weight_words, down_row, true, w_.down(w_.d_out_down, head, i), s_.width,
                   d_values, s_.width, true);
      ops_.product(kBlock, s_.width, s_.down, score_words, down_row, true, w_.down(w_.queries_down, head, i), s_.width,
                   d_keys, s_.width, true);
      ops_.product(kBlock, s_.width, s_.down, across, across_row, false, w_.down(w_.keys_down, key_head, block),
                   s_.width, w_.d_queries_of(part, head, i), s_.width, true);
    }
  }

  void store_queries(int64_t head, int64_t block) const {
    float* sum = w_.d_queries_of(0, head, block);
    for (int64_t part = 1; part < w_.parts; ++part)
      ops_.add(w_.d_queries_of(part, head, block), kBlock * s_.width, sum);
    ops_.store_rows(sum, s_.width, nullptr, present(block), p_.width, p_.dtype, p_.heads * p_.width,
                    at(g_.dq, p_.dtype, query_offset(head, block)));
  }

  void store_keys(int64_t key_head, int64_t block) const {
    const int64_t group = p_.heads / p_.key_heads, first = key_head * group;
    for (const auto& [base, to] : {std::pair{w_.d_keys, g_.dk}, std::pair{w_.d_values, g_.dv}}) {
      float* sum = w_.rows(base, first, block);
      for (int64_t i = 1; i < group; ++i) ops_.add(w_.rows(base, first + i, block), kBlock * s_.width, sum);
      ops_.store_rows(sum, s_.width, nullptr, present(block), p_.width, p_.dtype, p_.key_heads * p_.width,
                      at(to, p_.dtype, key_offset(key_head, block)));
    }
  }

  const AttentionProblem& p_;
  const Gradients& g_;
  const BlockOps& ops_;
  const PackedSizes s_;
  const Workspace w_;
  const BlockSegments segments_;
};

}  // namespace

int64_t attention_backward_workspace(const AttentionProblem& p) {
  const PackedSizes s = packed_sizes(p, false);
  return 4 * Workspace(p, s, nullptr).used;
}

void attention_backward(const AttentionProblem& p, const void* o, const float* log_sum, const void* d_o, void* dq,
                        void* dk, void* dv, void* workspace, const ParallelFor& parallel) {
  const Gradients gradients{o, d_o, log_sum, dq, dk, dv};
  Backward(p, gradients, workspace).run(parallel);
}

}  // namespace fettle::cpu
