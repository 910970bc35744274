// Defines what both tables for AMX share: the shape of tiles, and tiles 0 to 3, which contain sums. The rules of
// block_ops_body.h apply here, too.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fettle::cpu {
namespace {

constexpr int64_t kTile = 16;  // rows of a tile, and words of a row

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

}  // namespace
}  // namespace fettle::cpu
