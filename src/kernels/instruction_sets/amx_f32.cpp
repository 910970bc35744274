// Defines the table for f32 on CPUs with AMX: products of pieces of bf16 by tiles, all else by AVX-512.
#include <immintrin.h>

#define FETTLE_LANES 16
#include "kernels/cpu/piece_ops.h"
#include "kernels/instruction_sets/block_ops_body.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kTile = 16, kTileWords = kTile * kTile;
constexpr int kPieces = 3;

// Writes the pieces of 16 pairs of elements as words. The lower half of a word is a piece of `low`. p0 and p1 are
// rounded to nearest, so that the pieces below them have either sign and their errors do not add up. What they leave
// has at most 8 bits. The pieces of NaN contain NaN.
inline void split(Floats low, Floats high, Ints (&words)[kPieces]) {
  const Bits upper = Bits{} + 0xffff0000U;
#pragma GCC unroll 2
  for (int p = 0; p < kPieces - 1; ++p) {
    const Bits low_bits = (Bits)low + 0x8000, high_bits = (Bits)high + 0x8000;
    words[p] = (Ints)((low_bits >> 16) | (high_bits & upper));
    low = low - (Floats)(low_bits & upper);
    high = high - (Floats)(high_bits & upper);
  }
  words[kPieces - 1] = (Ints)(((Bits)low >> 16) | ((Bits)high & upper));
}

// Packs a whole block of f32. The word w of a line has the elements w and w + 16. A tile of the left operand has one
// row for each line, a tile of the right operand one row for each word.
template <bool kAlong, bool kLeft>
void pack_whole(const float* from, int64_t stride, Word* to) {
  for (int i = 0; i < kTile; ++i) {
    const float* const low = from + i * stride;
    Ints words[kPieces];
    split(load(low), load(kAlong ? low + kTile : low + kTile * stride), words);
    for (int p = 0; p < kPieces; ++p) store(to + p * kTileWords + i * kTile, words[p]);
  }
  if constexpr (kAlong == kLeft) return;
  for (int p = 0; p < kPieces; ++p, to += kTileWords) {
    Ints block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) block[i] = load_ints(to + i * kTile);
    turn(block);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(to + i * kTile, block[i]);
  }
}

void pack_block(const void* from, DType dtype, int64_t stride, bool along, int64_t lines, int64_t depth, bool left,
                Word* to) {
  const float* whole = static_cast<const float*>(from);
  alignas(64) float copy[kPieceLines * kPieceDepth];
  if (dtype != DType::kF32 || lines < kPieceLines || depth < kPieceDepth) {
    const int64_t rows = along ? lines : depth, width = along ? depth : lines;
    const int64_t row = along ? kPieceDepth : kPieceLines;
    for (int64_t i = 0; i < kPieceLines * kPieceDepth; ++i) copy[i] = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < width; ++i) copy[r * row + i] = element(from, dtype, r * stride + i);
    whole = copy;
    stride = row;
  }
  const auto run = along ? (left ? pack_whole<true, true> : pack_whole<true, false>)
                         : (left ? pack_whole<false, true> : pack_whole<false, false>);
  run(whole, stride, to);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Adds the product of piece kA of a and piece kB of b.
template <int kRows, int kColumns>
inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
}

// Computes kRows x kColumns tiles of c. Tiles 0 to 3 contain parts of c. Tiles 4 and 5 contain pieces of a. Tiles 6 and
// 7 contain pieces of b.
template <int kRows, int kColumns>
void tile_block(int64_t blocks, const Word* a, int64_t a_line, const Word* b, int64_t b_line, float* c, int64_t c_row,
                bool accumulate) {
  const int64_t c_stride = c_row * 4;
  float* const below = c + kTile * c_row;
  if (accumulate) {
    _tile_loadd(0, c, c_stride);
    if constexpr (kColumns == 2) _tile_loadd(1, c + kTile, c_stride);
    if constexpr (kRows == 2) _tile_loadd(2, below, c_stride);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, below + kTile, c_stride);
  } else {
    _tile_zero(0);
    if constexpr (kColumns == 2) _tile_zero(1);
    if constexpr (kRows == 2) _tile_zero(2);
    if constexpr (kRows == 2 && kColumns == 2) _tile_zero(3);
  }
  const auto load_a = [&](int piece) {
    _tile_loadd(4, a + piece * kTileWords, 64);
    if constexpr (kRows == 2) _tile_loadd(5, a + a_line + piece * kTileWords, 64);
  };
  const auto load_b = [&](int piece) {
    _tile_loadd(6, b + piece * kTileWords, 64);
    if constexpr (kColumns == 2) _tile_loadd(7, b + b_line + piece * kTileWords, 64);
  };
  for (int64_t i = 0; i < blocks; ++i, a += kPieceBlockWords, b += kPieceBlockWords) {
    load_a(0);
    load_b(2);
    multiply_tiles<kRows, kColumns>();
    load_b(1);
    multiply_tiles<kRows, kColumns>();
    load_a(1);
    multiply_tiles<kRows, kColumns>();
    load_b(0);
    multiply_tiles<kRows, kColumns>();
    load_a(2);
    multiply_tiles<kRows, kColumns>();
    load_a(0);
    multiply_tiles<kRows, kColumns>();
  }
  _tile_stored(0, c, c_stride);
  if constexpr (kColumns == 2) _tile_stored(1, c + kTile, c_stride);
  if constexpr (kRows == 2) _tile_stored(2, below, c_stride);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, below + kTile, c_stride);
}

template <int kRows>
void tile_rows(int64_t m, int64_t n, int64_t blocks, const Word* a, int64_t a_line, const Word* b, int64_t b_line,
               float* c, int64_t c_row, bool accumulate) {
  TileConfig config;
  if (kRows == 1)
    for (const int tile : {0, 1, 4}) config.rows[tile] = static_cast<uint8_t>(m);
  _tile_loadconfig(&config);
  constexpr int64_t kStep = kRows * kTile;
  int64_t column = 0;
  for (; column < n; column += 2 * kTile, b += 2 * b_line)
    for (int64_t r = 0; r < m; r += kStep) {
      const Word* const left = a + r / kTile * a_line;
      float* const to = c + r * c_row + column;
      if (column + kTile < n)
        tile_block<kRows, 2>(blocks, left, a_line, b, b_line, to, c_row, accumulate);
      else
        tile_block<kRows, 1>(blocks, left, a_line, b, b_line, to, c_row, accumulate);
    }
}

void piece_product(int64_t m, int64_t n, int64_t blocks, const Word* a, int64_t a_line, const Word* b, int64_t b_line,
                   float* c, int64_t c_row, bool accumulate) {
  const auto rows = [&](auto run, int64_t count) {
    run(count, n, blocks, a, a_line, b, b_line, c, c_row, accumulate);
    a += count / kTile * a_line;
    c += count * c_row;
    m -= count;
  };
  if (m >= 2 * kTile) rows(tile_rows<2>, m / (2 * kTile) * (2 * kTile));
  if (m >= kTile) rows(tile_rows<1>, kTile);
  if (m > 0) rows(tile_rows<1>, m);
  _tile_release();
}

constexpr PieceOps kPieceOps{.pack = pack_block, .product = piece_product};

constexpr BlockOps make_piece_table() {
  BlockOps table = make_table("amx_bf16");
  table.pieces = &kPieceOps;
  return table;
}

}  // namespace

extern const BlockOps k_amx_f32;
const BlockOps k_amx_f32 = make_piece_table();

}  // namespace fettle::cpu
