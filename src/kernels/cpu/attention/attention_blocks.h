// Defines the parts that forward and backward attention share: the sizes of packed blocks, and which keys a block of
// queries sees.
#pragma once

#include <vector>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {

inline constexpr int64_t kBlock = 64;  // number of queries or keys in a block

// Sizes of packed arrays, in words. `blocks` is the number of blocks of a row's S keys, `padded` the number of keys
// padded to whole blocks, and `width` the width of a head padded to whole vectors.
struct PackedSizes {
  int64_t blocks, padded, width;
  int64_t across;  // words in a row that is packed across (contracted along the width)
  int64_t down;    // rows of a block that is packed down (contracted along its rows); a row has `width` words
  int64_t across_block() const { return kBlock * across; }
  int64_t down_block() const { return down * width; }
};
PackedSizes packed_sizes(const AttentionProblem& problem, bool pairs);

// Number of blocks of a row's queries.
int64_t query_block_count(const AttentionProblem& problem);

// The lowest and highest segment of each block of queries and of each block of filled keys.
class BlockSegments {
 public:
  explicit BlockSegments(const AttentionProblem& problem);
  struct Range {
    int32_t low, high;
  };
  const Range& of_queries(int64_t row, int64_t block) const { return queries_[row * query_blocks_ + block]; }
  const Range& of_keys(int64_t row, int64_t block) const { return keys_[row * key_blocks_ + block]; }

 private:
  int64_t query_blocks_, key_blocks_;
  std::vector<Range> queries_, keys_;
};

// Says which keys of a key block are visible to a query block. look() fills this struct for row `row` of the batch.
struct Visibility {
  bool any;         // false: the queries see no key of the block, and look() does not set `mask`
  ScoreBlock mask;  // look() does not set scores, row_words and slope; sets low and high only if `masked`
  int32_t low[kBlock], high[kBlock], query_segments[kBlock], key_segments[kBlock];
};
void look(const AttentionProblem& problem, const BlockSegments& segments, int64_t row, int64_t query_block,
          int64_t key_block, Visibility& out);

// A range of blocks, `last` included. key_blocks() returns the blocks of keys that a block of queries may see, judged
// by positions only. query_blocks() returns the blocks of queries that may see a block of keys, if `first` is 0.
struct BlockRange {
  int64_t first, last;
};
BlockRange key_blocks(const AttentionProblem& problem, int64_t query_block);
BlockRange query_blocks(const AttentionProblem& problem, int64_t blocks, int64_t key_block);

// Return the offset, in elements, of a query or a key in an array. `position` is its index in the array's row.
inline int64_t query_offset(const AttentionProblem& p, int64_t row, int64_t position, int64_t head) {
  return ((row * p.length + position) * p.heads + head) * p.width;
}
inline int64_t key_offset(const AttentionProblem& p, int64_t row, int64_t position, int64_t key_head) {
  return ((row * p.keys + position) * p.key_heads + key_head) * p.width;
}
inline const void* at(const void* base, DType dtype, int64_t elements) {
  return static_cast<const char*>(base) + elements * byte_size(dtype);
}
inline void* at(void* base, DType dtype, int64_t elements) {
  return static_cast<char*>(base) + elements * byte_size(dtype);
}

// Returns a buffer of this thread with at least `count` words, aligned to 64 bytes. The buffer is valid until this
// thread calls thread_words() again.
Word* thread_words(int64_t count);

}  // namespace fettle::cpu
