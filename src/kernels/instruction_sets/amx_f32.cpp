// Defines the table for f32 on CPUs with AMX: products of pieces of bf16 by tiles, all else by AVX-512.
#define FETTLE_LANES 16
#include "kernels/cpu/piece_ops.h"
#include "kernels/instruction_sets/block_ops_body.h"
#include "kernels/instruction_sets/tiles.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kTileWords = kTile * kTile, kRowBytes = kTile * 4;
constexpr int kPieces = 3;

// Writes the pieces of 16 pairs of elements as words. The lower half of a word is a piece of `low`. p0 and p1 are
// rounded to nearest, not truncated: so the pieces below them have either sign, and the terms that are left out do not
// add up. p2 is exact. At least one piece of NaN is NaN.
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

// Packs a whole block of f32. Word w of a line has the elements w and w + 16. A tile of the left operand has one
// row for each line, a tile of the right operand one row for each word.
template <bool kAlong, bool kLeft>
void pack_whole(const float* from, int64_t stride, Word* to) {
  Ints low[kLanes], high[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) low[i] = load_ints(from + i * stride);
  if constexpr (kAlong != kLeft) turn(low);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) high[i] = load_ints(from + (kAlong ? i * stride + kTile : (i + kTile) * stride));
  if constexpr (kAlong != kLeft) turn(high);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    Ints words[kPieces];
    split(floats_of(low[i]), floats_of(high[i]), words);
    for (int p = 0; p < kPieces; ++p) store(to + p * kTileWords + i * kTile, words[p]);
  }
}

// Computes PieceOps::pack. First copies a block that is bf16 or not whole.
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

// Adds the products of the pieces of a in tiles 4 and 5 and the pieces of b in tiles 6 and 7 to tiles 0 to 3.
template <int kRows, int kColumns>
inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
}

// Computes kRows x kColumns tiles of c. From one row of tiles to the next are c_line floats.
template <int kRows, int kColumns>
void tile_block(int64_t blocks, const Word* a, int64_t a_line, const Word* b, int64_t b_line, float* c, int64_t c_line,
                bool accumulate) {
  load_sums<kRows, kColumns>(c, kTileWords, c_line, kRowBytes, accumulate);
  const auto load_a = [&](int piece) {
    _tile_loadd(4, a + piece * kTileWords, kRowBytes);
    if constexpr (kRows == 2) _tile_loadd(5, a + a_line + piece * kTileWords, kRowBytes);
  };
  const auto load_b = [&](int piece) {
    _tile_loadd(6, b + piece * kTileWords, kRowBytes);
    if constexpr (kColumns == 2) _tile_loadd(7, b + b_line + piece * kTileWords, kRowBytes);
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
  store_sums<kRows, kColumns>(c, kTileWords, c_line, kRowBytes);
}

// Computes PieceOps::product, two lines of a by two lines of b at a time. The two lines of b stay in the L1 cache.
void piece_product(int64_t a_lines, int64_t b_lines, int64_t blocks, const Word* a, int64_t a_line, const Word* b,
                   int64_t b_line, float* c, bool accumulate) {
  _tile_loadconfig(&kConfig);
  const int64_t c_line = b_lines * kTileWords;
  for (int64_t column = 0; column < b_lines; column += 2, b += 2 * b_line)
    for (int64_t row = 0; row < a_lines; row += 2) {
      const bool two_rows = row + 1 < a_lines, two_columns = column + 1 < b_lines;
      const auto run = two_rows ? (two_columns ? tile_block<2, 2> : tile_block<2, 1>)
                                : (two_columns ? tile_block<1, 2> : tile_block<1, 1>);
      run(blocks, a + row * a_line, a_line, b, b_line, c + row * c_line + column * kTileWords, c_line, accumulate);
    }
  _tile_release();
}

constexpr PieceOps kPieceOps{.pack = pack_block, .product = piece_product};

// The table has the name of the other table for AMX, because FETTLE_MAX_CPU_ISA names instruction sets.
constexpr BlockOps make_piece_table() {
  BlockOps table = make_table("amx_bf16");
  table.pieces = &kPieceOps;
  return table;
}

}  // namespace

extern const BlockOps k_amx_f32;
const BlockOps k_amx_f32 = make_piece_table();

}  // namespace fettle::cpu
