// Defines what both tables for AMX share: the shape of tiles; tiles 0 to 3, which contain sums; and TileOps::product. A
// file includes block_ops_body.h before this header. The rules of block_ops_body.h apply here, too.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/tile_ops.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kTile = kTileLines;  // rows of a tile, and words of a row

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

// Loads kRows x kColumns tiles of sums, or sets them to 0 if `accumulate` is false. The next tile to the right begins
// `right` floats behind a tile, the next one below `below` floats. Rows of a tile lie `stride` bytes apart.
template <int kRows, int kColumns>
inline void load_sums(const float* c, int64_t right, int64_t below, int64_t stride, bool accumulate) {
  if (accumulate) {
    _tile_loadd(0, c, stride);
    if constexpr (kColumns == 2) _tile_loadd(1, c + right, stride);
    if constexpr (kRows == 2) _tile_loadd(2, c + below, stride);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, c + below + right, stride);
  } else {
    _tile_zero(0);
    if constexpr (kColumns == 2) _tile_zero(1);
    if constexpr (kRows == 2) _tile_zero(2);
    if constexpr (kRows == 2 && kColumns == 2) _tile_zero(3);
  }
}

template <int kRows, int kColumns>
inline void store_sums(float* c, int64_t right, int64_t below, int64_t stride) {
  _tile_stored(0, c, stride);
  if constexpr (kColumns == 2) _tile_stored(1, c + right, stride);
  if constexpr (kRows == 2) _tile_stored(2, c + below, stride);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, c + below + right, stride);
}

// Adds the product of tiles 4 and 5 (rows of a) and tiles 6 and 7 (columns of b) to tiles 0 to 3.
template <int kRows, int kColumns>
inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
}

// Loads the tiles that multiply_tiles() multiplies.
template <int kRows>
inline void load_a(const LeftTiles& a, const Word* from) {
  _tile_loadd(4, from, a.row * 4);
  if constexpr (kRows == 2) _tile_loadd(5, from + a.line, a.row * 4);
}

template <int kColumns>
inline void load_b(const Word* from, int64_t b_line) {
  _tile_loadd(6, from, kTile * 4);
  if constexpr (kColumns == 2) _tile_loadd(7, from + b_line, kTile * 4);
}

// Up to 2 x 2 tiles of sums that still have to be rounded and written. Storing tiles takes a while, so the sums are
// read after the next tiles have been multiplied.
struct WaitingSums {
  static constexpr int64_t kWidth = 2 * kTile;
  alignas(64) float sums[2 * kTile * kWidth];
  uint16_t* to = nullptr;
  int64_t to_row = 0, rows = 0, columns = 0;

  void write() {
    asm volatile("" ::: "memory");  // GCC 12 does not know that storing tiles writes memory
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; c += kTile) store_rounded(to + r * to_row + c, load(sums + r * kWidth + c));
    rows = 0;
  }
};

// Computes kRows x kColumns tiles of the result, from its first row and column on. Writes the sums that wait.
template <typename Blocks, int kRows, int kColumns>
void sums_of_blocks(const TileProduct& first, const TileProduct& second, const TileResult& c, WaitingSums& waiting) {
  const int64_t below = kTile * c.sum_row, stride = c.sum_row * 4;
  load_sums<kRows, kColumns>(c.sums, kTile, below, stride, c.accumulate);
  Blocks::template multiply<kRows, kColumns>(first);
  Blocks::template multiply<kRows, kColumns>(second);
  if (c.rounded == nullptr) return store_sums<kRows, kColumns>(c.sums, kTile, below, stride);
  waiting.write();
  store_sums<kRows, kColumns>(waiting.sums, kTile, kTile * WaitingSums::kWidth, WaitingSums::kWidth * 4);
  waiting.to = c.rounded;
  waiting.to_row = c.rounded_row;
  waiting.rows = c.rows < kRows * kTile ? c.rows : kRows * kTile;
  waiting.columns = kColumns * kTile;
}

// The product from this line of a and of b on.
inline TileProduct product_from(const TileProduct& p, int64_t row, int64_t column) {
  return {p.blocks, {p.a.words + row * p.a.line, p.a.row, p.a.block, p.a.line}, p.b + column * p.b_line, p.b_line};
}

inline TileResult result_from(const TileResult& c, int64_t row, int64_t column) {
  TileResult out = c;
  out.sums += kTile * (row * c.sum_row + column);
  if (c.rounded != nullptr) out.rounded += kTile * (row * c.rounded_row + column);
  out.rows -= kTile * row;
  return out;
}

// Computes TileOps::product, two lines of a by two lines of b at a time. The two lines of b stay in the L1 cache.
// Blocks::multiply adds the products of several blocks along k to the sums.
template <typename Blocks>
void product_of_blocks(int64_t a_lines, int64_t b_lines, const TileProduct& first, const TileProduct& second,
                       const TileResult& result) {
  WaitingSums waiting;
  _tile_loadconfig(&kConfig);
  for (int64_t column = 0; column < b_lines; column += 2)
    for (int64_t row = 0; row < a_lines; row += 2) {
      const bool two_rows = row + 1 < a_lines, two_columns = column + 1 < b_lines;
      const auto run = two_rows ? (two_columns ? sums_of_blocks<Blocks, 2, 2> : sums_of_blocks<Blocks, 2, 1>)
                                : (two_columns ? sums_of_blocks<Blocks, 1, 2> : sums_of_blocks<Blocks, 1, 1>);
      run(product_from(first, row, column), product_from(second, row, column), result_from(result, row, column),
          waiting);
    }
  waiting.write();
  _tile_release();
}

}  // namespace
}  // namespace fettle::cpu
