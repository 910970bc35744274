// Defines the parts that forward and backward attention share: the sizes of packed blocks, and which keys a block of
// queries sees.
#pragma once

#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {

inline constexpr int64_t kBlock = 64;  // number of queries or keys in a block

// Sizes of packed arrays, in words. `blocks` is the number of blocks of a row, `padded` the length padded to whole
// blocks, and `width` the width of a head padded to whole vectors.
struct PackedSizes {
  int64_t blocks, padded, width;
  int64_t across;  // words in a row that is packed across (contracted along the width)
  int64_t down;    // rows of a block that is packed down (contracted along its rows); a row has `width` words
  int64_t across_block() const { return kBlock * across; }
  int64_t down_block() const { return down * width; }
};
PackedSizes packed_sizes(const AttentionProblem& problem, bool pairs);

// The lowest and highest segment of each block of a row.
class BlockSegments {
 public:
  BlockSegments(const AttentionProblem& problem, int64_t blocks);
  struct Range {
    int32_t low, high;
  };
  const Range& of(int64_t row, int64_t block) const { return ranges_[row * blocks_ + block]; }

 private:
  int64_t blocks_;
  std::vector<Range> ranges_;
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
// by positions only. query_blocks() returns the blocks of queries that may see a block of keys.
struct BlockRange {
  int64_t first, last;
};
BlockRange key_blocks(const AttentionProblem& problem, int64_t blocks, int64_t query_block);
BlockRange query_blocks(const AttentionProblem& problem, int64_t blocks, int64_t key_block);

// Returns the offset, in elements, of row `row`, position `position` and head `head` in an array.
inline int64_t offset(const AttentionProblem& p, int64_t heads, int64_t row, int64_t position, int64_t head) {
  return ((row * p.length + position) * heads + head) * p.width;
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
