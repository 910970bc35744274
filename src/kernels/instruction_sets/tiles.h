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

// Computes kRows x kColumns tiles of c, whose rows lie c_row floats apart.
template <typename Blocks, int kRows, int kColumns>
void sums_of_blocks(int64_t blocks, const LeftTiles& a, const Word* b, int64_t b_line, float* c, int64_t c_row,
                    bool accumulate) {
  load_sums<kRows, kColumns>(c, kTile, kTile * c_row, c_row * 4, accumulate);
  Blocks::template multiply<kRows, kColumns>(blocks, a, b, b_line);
  store_sums<kRows, kColumns>(c, kTile, kTile * c_row, c_row * 4);
}

// Computes TileOps::product, two lines of a by two lines of b at a time. The two lines of b stay in the L1 cache.
// Blocks::multiply adds the products of several blocks along k to the sums.
template <typename Blocks>
void product_of_blocks(int64_t a_lines, int64_t b_lines, int64_t blocks, const LeftTiles& a, const Word* b,
                       int64_t b_line, float* c, int64_t c_row, bool accumulate) {
  _tile_loadconfig(&kConfig);
  for (int64_t column = 0; column < b_lines; column += 2, b += 2 * b_line)
    for (int64_t row = 0; row < a_lines; row += 2) {
      const bool two_rows = row + 1 < a_lines, two_columns = column + 1 < b_lines;
      const auto run = two_rows ? (two_columns ? sums_of_blocks<Blocks, 2, 2> : sums_of_blocks<Blocks, 2, 1>)
                                : (two_columns ? sums_of_blocks<Blocks, 1, 2> : sums_of_blocks<Blocks, 1, 1>);
      run(blocks, {a.words + row * a.line, a.row, a.block, a.line}, b, b_line, c + kTile * (row * c_row + column),
          c_row, accumulate);
    }
  _tile_release();
}

}  // namespace
}  // namespace fettle::cpu
