// Defines the table for f32 on CPUs with AMX: products of pieces of bf16 by tiles, all else by AVX-512.
#define FETTLE_LANES 16
#include "kernels/instruction_sets/block_ops_body.h"
#include "kernels/instruction_sets/tiles.h"

namespace fettle::cpu {
namespace {

constexpr int kPieces = 3;
constexpr int64_t kBlockWords = kPieces * kTileWords;

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

// Packs a block. First copies a block that is bf16 or not whole.
void pack_block(const void* from, DType dtype, int64_t stride, bool along, int64_t lines, int64_t depth, bool left,
                Word* to) {
  const float* whole = static_cast<const float*>(from);
  alignas(64) float copy[kTileLines * kTileDepth];
  if (dtype != DType::kF32 || lines < kTileLines || depth < kTileDepth) {
    const int64_t rows = along ? lines : depth, width = along ? depth : lines;
    const int64_t row = along ? kTileDepth : kTileLines;
    for (int64_t i = 0; i < kTileLines * kTileDepth; ++i) copy[i] = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < width; ++i) copy[r * row + i] = element(from, dtype, r * stride + i);
    whole = copy;
    stride = row;
  }
  const auto run = along ? (left ? pack_whole<true, true> : pack_whole<true, false>)
                         : (left ? pack_whole<false, true> : pack_whole<false, false>);
  run(whole, stride, to);
}

// Computes TileOps::pack.
void pack_blocks(const void* from, DType dtype, int64_t stride, bool along, int64_t lines, int64_t depth, bool left,
                 Word* to, int64_t to_line) {
  const int64_t bytes = dtype == DType::kF32 ? 4 : 2, step = along ? stride : 1;
  for (int64_t i = 0; i < lines; i += kTileLines)
    pack_block(static_cast<const char*>(from) + i * step * bytes, dtype, stride, along,
               lines - i < kTileLines ? lines - i : kTileLines, depth, left, to + i / kTileLines * to_line);
}

// Computes the six products of pieces for each block.
struct Blocks {
  template <int kRows, int kColumns>
  static void multiply(const TileProduct& p) {
    for (int64_t i = 0; i < p.blocks; ++i) {
      const auto a_piece = [&](int piece) { load_a<kRows>(p.a, p.a.words + i * p.a.block + piece * kTileWords); };
      const auto b_piece = [&](int piece) { load_b<kColumns>(p.b + i * kBlockWords + piece * kTileWords, p.b_line); };
      a_piece(0);
      b_piece(2);
      multiply_tiles<kRows, kColumns>();
      b_piece(1);
      multiply_tiles<kRows, kColumns>();
      a_piece(1);
      multiply_tiles<kRows, kColumns>();
      b_piece(0);
      multiply_tiles<kRows, kColumns>();
      a_piece(2);
      multiply_tiles<kRows, kColumns>();
      a_piece(0);
      multiply_tiles<kRows, kColumns>();
    }
  }
};

constexpr TileOps kTileOps{.pieces = kPieces, .pack = pack_blocks, .product = product_of_blocks<Blocks>};

// The table has the name of the other table for AMX, because FETTLE_MAX_CPU_ISA names instruction sets.
constexpr BlockOps make_piece_table() {
  BlockOps table = make_table("amx_bf16");
  table.tiles = &kTileOps;
  return table;
}

}  // namespace

extern const BlockOps k_amx_f32;
const BlockOps k_amx_f32 = make_piece_table();

}  // namespace fettle::cpu
