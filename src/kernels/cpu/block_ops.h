// Defines BlockOps: a table of functions on blocks, from which CPU kernels are built. There is one table per
// instruction set.
//
// Operands are packed into words of 32 bits: one f32, or a pair of neighbouring bf16 along the contracted dim. Packed
// rows are padded with zeros. No function allocates or throws. The same table always gives the same results.
#pragma once

#include <cstdint>
#include <vector>

#include "base/arrays/shape.h"
#include "kernels/cpu/row_ops.h"

namespace fettle::cpu {

struct TileOps;

union Word {
  float f32;
  uint32_t pair;  // the element with the lower index is in the low half
};

// Scores of a block of queries (rows) and a block of keys (columns). Rows begin `row_words` floats apart.
struct ScoreBlock {
  float* scores;  // input: products of query and key
  int64_t row_words;
  int64_t rows, columns;  // rows: even; columns: a multiple of 16
  float scale, softcap;   // softcap 0: none
  float slope;            // slope * (distance of query and key) is subtracted; 0: none
  int64_t first_query, first_key;
  // Row r sees the columns [low[r], high[r]). When `segments` is true, row r sees only the columns of this range that
  // are in its own segment.
  const int32_t *low, *high;
  bool masked;  // false: every row sees every column
  bool segments;
  const int32_t *query_segments, *key_segments;
};

// The running softmax of a block of rows. Each further block of keys updates it.
struct SoftmaxRows {
  float* top;         // the largest score so far; starts at kLowest
  float* sum;         // sum of the weights, as kSumLanes partial sums per row; starts at 0
  float* correction;  // out: the factor by which sums of earlier blocks must be multiplied
};
// The initial value of `top`. It is above the score of hidden keys (kHidden), so the weights of hidden keys,
// exp(kHidden - top), are 0.
inline constexpr float kLowest = -1e30F;
inline constexpr int64_t kSumLanes = 16;

// The queries of one position that share a key head, and the keys that they see: those from `first` to `last` - 1.
struct QueryKeys {
  const void* q;      // [heads, width]
  const void *k, *v;  // key and value number i begin at element i * stride
  DType dtype;        // of q, k and v: f32 or bf16
  int64_t heads, width, stride, first, last;
  float scale, softcap;  // softcap 0: none
  const float* slopes;   // [heads]: slopes[h] * (position - i) is subtracted from the score of key i; null: none
  int64_t position;
};

struct BlockOps {
  const char* name;  // "avx512_bf16"
  bool pairs;        // words are pairs of bf16; else f32

  // Packs `rows` x `width` elements as padded_rows x row_words words. The elements are f32 or bf16 (with pairs only
  // bf16), and their rows lie `stride` elements apart. pack_across packs for a contraction along the width. pack_down
  // packs for a contraction along the rows. With pairs, pack_down makes one row of words from two source rows, so it
  // writes only padded_rows / 2 rows (padded_rows is even).
  void (*pack_across)(const void* from, DType dtype, int64_t stride, int64_t rows, int64_t width, int64_t padded_rows,
                      int64_t row_words, Word* to);
  void (*pack_down)(const void* from, DType dtype, int64_t stride, int64_t rows, int64_t width, int64_t padded_rows,
                    int64_t row_words, Word* to);
  // Packs a transposed block: each of the `rows` source rows, which have `width` elements, becomes a column. The result
  // has one row of `row_words` words (a multiple of 16) for each word along the width. An odd width is padded.
  void (*pack_turned)(const void* from, DType dtype, int64_t stride, int64_t rows, int64_t width, int64_t row_words,
                      Word* to);
  // Computes c[m][n] = (accumulate ? c : 0) + sum over k of a(m, k) * b[k][n], where k counts words. a(m, k) is
  // a[m * a_row + k], or a[k * a_row + m] when `a_transposed`. n is a multiple of 16.
  void (*product)(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
                  int64_t b_row, float* c, int64_t c_row, bool accumulate);
  // Like `product`, but does not write the sums to c: writes them to `to`, rounded to bf16. The rows of `to` lie
  // `to_row` elements apart. Null: not available.
  void (*last_product)(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
                       int64_t b_row, float* c, int64_t c_row, bool accumulate, uint16_t* to, int64_t to_row);

  void (*transpose)(const Word* from, int64_t rows, int64_t columns, Word* to);

  // Replaces the scores in place by the weights exp(score - top), packed across, and updates the running softmax.
  // Weights are rounded to bf16 when `round` is true. Returns true when a correction is not 1.
  bool (*softmax)(const ScoreBlock& block, const SoftmaxRows& rows, bool round);
  // Computes gradients from the rows' log-sum-exp (`log_sum`) and the dot products of o and d_o (`out_dot`). On entry,
  // `block.scores` has the products of query and key, and `weights` (same layout) has the products of d_o and v, all in
  // f32. On return, `block.scores` has the gradients of the products of query and key, and `weights` has the
  // probabilities. Without pairs, both stay in f32, rounded to bf16 when `round` is true, and `across` is not used.
  // With pairs, both are packed down: the word for rows r and r + 1 (r even) of a column replaces the element of row r,
  // and the elements of odd rows do not change. `across` also gets the gradients, packed across as [rows][columns / 2]
  // words.
  void (*softmax_gradient)(const ScoreBlock& block, const float* log_sum, const float* out_dot, float* weights,
                           Word* across, bool round);

  // Computes values[r][:] *= factor[r].
  void (*scale_rows)(float* values, int64_t rows, int64_t width, int64_t row, const float* factor);
  // Computes to[r][0:width] = from[r][0:width] * factor[r] in `dtype`. The rows of `to` lie `stride` elements apart. A
  // null factor means 1.
  void (*store_rows)(const float* from, int64_t from_row, const float* factor, int64_t rows, int64_t width, DType dtype,
                     int64_t stride, void* to);
  // Computes to[0:count] += from[0:count].
  void (*add)(const float* from, int64_t count, float* to);
  // Computes out[r] = dot product of row r of x and row r of y.
  void (*row_dots)(const void* x, const void* y, DType dtype, int64_t stride, int64_t rows, int64_t width, float* out);

  // Computes c[r][j] = dot product of row r of x and row j of w, in f32. x has m rows and w has `rows` rows, all of k
  // elements (f32 or bf16). Rows of c lie `c_row` floats apart. The order of each sum does not depend on m or `rows`.
  // Reads w once, so it is fast when m is small.
  void (*row_products)(const void* x, DType x_type, int64_t m, const void* w, DType w_type, int64_t rows, int64_t k,
                       float* c, int64_t c_row);

  // Computes c[h][i] = (accumulate ? c : 0) + sum over j of weights[h][j] * x[j][i], in f32, where h < count, j < rows
  // and i < columns. Rows of x (f32 or bf16) lie `stride` elements apart. Fast when `count` is small.
  void (*weighted_rows)(const float* weights, int64_t weight_row, int64_t count, const void* x, DType dtype,
                        int64_t stride, int64_t rows, int64_t columns, float* c, int64_t c_row, bool accumulate);

  // Computes the attention of `keys.q`, not divided by the sum of the weights: out [heads, width], the largest score
  // `top` [heads], and `sum` [heads], the sum of exp(score - top). `scores` is scratch memory for heads * (last -
  // first) floats. Weights of bf16 values are rounded to bf16. Reads each key and each value once.
  void (*attend_one)(const QueryKeys& keys, float* scores, float* top, float* sum, float* out);

  // `product` is fastest when m is a multiple of row_step and k a multiple of word_step.
  int64_t row_step, word_step;
  RowOps rows;
  const TileOps* tiles = nullptr;  // not null: faster than `product` for the products of large matrices
};

// Returns the fastest table that this CPU can run, for operands of `dtype` (f32 or bf16).
const BlockOps& block_ops(DType dtype);
// Returns false if block_ops(dtype) is the portable table, whose kernels are not faster than their bodies.
bool has_fast_ops(DType dtype);
// Returns all tables that this CPU can run, the portable one first. If the environment variable FETTLE_MAX_CPU_ISA
// names an instruction set, the list has no better one.
std::vector<const BlockOps*> usable_block_ops(DType dtype);

}  // namespace fettle::cpu
