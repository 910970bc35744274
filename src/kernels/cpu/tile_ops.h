// Defines TileOps: products of large matrices by instructions that multiply tiles of bf16. There are two tables for
// AMX.
//
// bf16 operands are multiplied as they are. An f32 is the sum of three bf16, its pieces: p0 is the number, rounded; p1
// is what p0 leaves, rounded; p2 is the rest, which has at most 8 bits. A product of two numbers is the sum of nine
// products of their pieces. Six are computed: p0 p0, p0 p1, p1 p0, p1 p1, p0 p2 and p2 p0. The other three together are
// at most 2^-23 of the product, and far less on average. Products of bf16 are exact in f32, and sums are f32. So a sum
// is as exact as one of f32 (docs/decisions/2026-11-27-f32-from-bf16.md). The limits: a product with an infinite
// operand is NaN; so is one with an operand of 3.396e38 or more, which p0 rounds to infinity; pieces and products of
// pieces below 2^-126 count as 0.
//
// Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations" (arXiv 1904.06376). In StableHLO, the same six products are the algorithm with six primitive operations
// on bf16; XLA calls it "BF16_BF16_F32_X6".
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"

namespace fettle::cpu {

union Word;

// Both operands are divided into blocks: kTileLines lines, which are rows of the left operand or columns of the right
// one, and kTileDepth elements along the contracted dim. A packed block has one tile for each piece. A tile has 16 x 16
// words; a word has the pieces of two elements.
inline constexpr int64_t kTileLines = 16, kTileDepth = 32, kTileWords = 16 * 16;

// The left operand of TileOps::product. The numbers are distances in words: from one row of a tile to the next, from
// one block to the next along k, and from one line of blocks to the next. With one piece, a word has two neighbours
// along k, so the operand may also be an array that is not packed.
struct LeftTiles {
  const Word* words = nullptr;
  int64_t row = 0, block = 0, line = 0;
};

// A product of packed operands that are `blocks` blocks deep. From one line of blocks of b to the next are b_line
// words.
struct TileProduct {
  int64_t blocks = 0;
  LeftTiles a = {};
  const Word* b = nullptr;
  int64_t b_line = 0;
};

// Where sums go. Rows of sums lie `sum_row` floats apart. If `rounded` is not null, the sums are rounded to bf16 and
// written there, and not to `sums`: whole lines of b, but only the first `rows` rows, which lie rounded_row elements
// apart.
struct TileResult {
  float* sums;
  int64_t sum_row;
  bool accumulate;  // starts with what is in `sums`, not with 0
  uint16_t* rounded = nullptr;
  int64_t rounded_row = 0, rows = 0;
};

struct TileOps {
  int64_t pieces;  // of a number: 3 for f32; 1 for bf16
  // Packs `lines` x `depth` elements as lines of blocks that are one block deep and begin `to_line` words apart. `from`
  // is the first element: bf16, or f32 if there are three pieces. If `along` is true, the elements of a line are stored
  // one after the other, and lines begin `stride` elements apart; else it is the other way around. Elements that fill
  // up blocks are 0.
  void (*pack)(const void* from, DType dtype, int64_t stride, bool along, int64_t lines, int64_t depth, bool left,
               Word* to, int64_t to_line);
  // Computes the sum of two products, of which the second may have no blocks, or adds it to the sums. The sums have
  // 16 * a_lines rows and 16 * b_lines columns.
  void (*product)(int64_t a_lines, int64_t b_lines, const TileProduct& first, const TileProduct& second,
                  const TileResult& result);
};

}  // namespace fettle::cpu
