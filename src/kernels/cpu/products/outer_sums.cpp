#include "kernels/cpu/products/outer_sums.h"

#include <algorithm>
#include <bit>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/panels.h"
#include "kernels/cpu/tile_ops.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kFew = 16;             // the largest number of columns of the narrow operand
constexpr int64_t kFewestOfWide = 64;    // columns of the wide operand
constexpr int64_t kColumns = 128;        // columns of a task
constexpr int64_t kRows = 256;           // rows at once; their elements of a task's columns fit into the L2 cache
constexpr int64_t kRowsOfPacking = 512;  // rows of a task that packs
constexpr int64_t kTilesAtOnce = 16;     // blocks of rows at once, if the sums are computed by tiles

static_assert(kFew == kTileLines && kColumns % kTileLines == 0 && kRowsOfPacking % kTileDepth == 0);

// The operands by their width. Both have k rows.
struct OuterSum {
  ProductOperand narrow, wide;
  int64_t count, columns;  // of `narrow` and of `wide`
  bool wide_is_left;       // the result has a row for each column of `wide`
};

OuterSum outer_sum(const MatrixProduct& p) {
  if (p.m <= p.n) return {p.a, p.b, p.m, p.n, false};
  return {p.b, p.a, p.n, p.m, true};
}

// Writes rows [first, end) of `narrow` as columns of `weights` [count, k].
template <typename Read>
void turn(int64_t count, int64_t k, int64_t first, int64_t end, float* weights, Read read) {
  for (int64_t r = first; r < end; ++r)
    for (int64_t j = 0; j < count; ++j) weights[j * k + r] = read(r * count + j);
}

void turn(const OuterSum& s, int64_t k, int64_t first, int64_t end, float* weights) {
  if (s.narrow.dtype == DType::kF32)
    return turn(s.count, k, first, end, weights,
                [x = static_cast<const float*>(s.narrow.data)](int64_t i) { return x[i]; });
  turn(s.count, k, first, end, weights, [x = static_cast<const uint16_t*>(s.narrow.data)](int64_t i) {
    return std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
  });
}

// Returns the table's functions on tiles if they can compute the sums.
const TileOps* tiles_for(const OuterSum& s, const BlockOps& ops) {
  const bool narrow = s.narrow.dtype == DType::kBF16 && s.wide.dtype == DType::kBF16;
  return narrow && ops.tiles != nullptr && ops.tiles->pieces == 1 ? ops.tiles : nullptr;
}

// Packs rows [first, end) of an operand with `columns` columns as tiles, `width` columns from `column` on. From one
// line of blocks to the next are `line` words.
void pack_tiles(const TileOps& tiles, const ProductOperand& operand, int64_t columns, int64_t column, int64_t width,
                int64_t first, int64_t end, bool left, Word* to, int64_t line) {
  for (int64_t row = first; row < end; row += kTileDepth, to += kTileWords)
    tiles.pack(at(operand.data, operand.dtype, row * columns + column), operand.dtype, columns, false, width,
               std::min(kTileDepth, end - row), left, to, line);
}

// Computes the sums of `width` columns of `wide` from `column` on. Rows of sums lie kColumns floats apart.
void sum_by_tiles(const TileOps& tiles, const OuterSum& s, int64_t k, const Word* narrow, int64_t column, int64_t width,
                  float* sums) {
  constexpr int64_t kLine = kTilesAtOnce * kTileWords;
  Word* const slice = thread_words(kLine * (kColumns / kTileLines));
  for (int64_t first = 0; first < k; first += kTilesAtOnce * kTileDepth) {
    const int64_t end = std::min(k, first + kTilesAtOnce * kTileDepth);
    pack_tiles(tiles, s.wide, s.columns, column, width, first, end, false, slice, kLine);
    tiles.product(1, quotient_up(width, kTileLines),
                  {.blocks = quotient_up(end - first, kTileDepth),
                   .a = {.words = narrow + first / kTileDepth * kTileWords, .row = kTileDepth / 2, .block = kTileWords},
                   .b = slice,
                   .b_line = kLine},
                  {}, {.sums = sums, .sum_row = kColumns, .accumulate = first > 0});
  }
}

// Computes and stores the sums of `width` columns of `wide` from `column` on. `narrow` is that operand, packed.
void multiply_columns(const MatrixProduct& p, const OuterSum& s, const BlockOps& ops, const Word* narrow,
                      int64_t column, int64_t width, void* c) {
  alignas(64) float sums[kFew * kColumns];
  float across[kFew * kColumns], scales[kFew];
  if (const TileOps* const tiles = tiles_for(s, ops))
    sum_by_tiles(*tiles, s, p.k, narrow, column, width, sums);
  else
    for (int64_t first = 0; first < p.k; first += kRows)
      ops.weighted_rows(&narrow->f32 + first, p.k, s.count, at(s.wide.data, s.wide.dtype, first * s.columns + column),
                        s.wide.dtype, s.columns, std::min(kRows, p.k - first), width, sums, kColumns, first > 0);
  std::fill_n(scales, kFew, p.scale);
  if (!s.wide_is_left)
    return ops.store_rows(sums, kColumns, scales, s.count, width, p.result, p.n, at(c, p.result, column));
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < s.count; ++j) across[i * s.count + j] = sums[j * kColumns + i];
  // Rows of the result have no gaps, so they are stored as one row.
  ops.store_rows(across, 0, scales, 1, width * s.count, p.result, 0, at(c, p.result, column * s.count));
}

}  // namespace

bool is_outer_sum(const MatrixProduct& p) {
  return p.k2 == 0 && p.a.turned && !p.b.turned && std::min(p.m, p.n) <= kFew && std::max(p.m, p.n) >= kFewestOfWide;
}

int64_t outer_sum_words(const MatrixProduct& p) {
  return std::max(quotient_up(outer_sum(p).count * p.k, 16) * 16, quotient_up(p.k, kTileDepth) * kTileWords);
}

TaskRow::Group add_outer_sum(const MatrixProduct& p, const BlockOps& ops, void* c, void* workspace, TaskRow& tasks,
                             TaskRow::Group after) {
  const OuterSum s = outer_sum(p);
  auto* const narrow = static_cast<Word*>(workspace);
  auto pack = [s, narrow, k = p.k, tiles = tiles_for(s, ops)](int64_t task) {
    const int64_t first = task * kRowsOfPacking, end = std::min(k, first + kRowsOfPacking);
    if (tiles == nullptr) return turn(s, k, first, end, &narrow->f32);
    pack_tiles(*tiles, s.narrow, s.count, 0, s.count, first, end, true, narrow + first / kTileDepth * kTileWords, 0);
  };
  auto sum = [p, s, &ops, narrow, c](int64_t task) {
    const int64_t column = task * kColumns;
    multiply_columns(p, s, ops, narrow, column, std::min(kColumns, s.columns - column), c);
  };
  return tasks.add(quotient_up(s.columns, kColumns), sum, tasks.add(quotient_up(p.k, kRowsOfPacking), pack, after));
}

}  // namespace fettle::cpu
