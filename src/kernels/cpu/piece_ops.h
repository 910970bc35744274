// Defines PieceOps: products of f32 by instructions that multiply only bf16. There is a table for AMX.
//
// Each f32 is the sum of three bf16, its pieces: p0 has the upper 8 bits of its significand, p1 and p2 have what p0 and
// p1 leave. A product of two f32 is the sum of the products of their pieces. Six of the nine are computed: p0 p0, p0 p1,
// p1 p0, p1 p1, p0 p2 and p2 p0. The other three are at most 2^-22 of the product, and 2^-26 on average, so less than
// the rounding of an f32. Each product of bf16 is exact in f32, and sums are f32. Pieces below 2^-126 count as 0. A
// product with an infinite operand is NaN.
//
// Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations" (arXiv 1904.06376). XLA has the same six products as the algorithm "dot_bf16_bf16_f32_x6".
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"

namespace fettle::cpu {

union Word;

// Both operands are divided into blocks of kLines lines, which are rows of the left operand or columns of the right
// one, and kDepth elements along the contracted dim. A block becomes three tiles, one for each piece, of kTileWords
// words each. A word is a pair of elements.
inline constexpr int64_t kPieceLines = 16, kPieceDepth = 32, kPieceBlockWords = 3 * 16 * 16;

struct PieceOps {
  // Packs a block. `from` is its first element, f32 or bf16. If `along` is true, the elements of a line are neighbours,
  // and lines lie `stride` elements apart; else neighbouring lines are neighbours, and the elements of a line lie
  // `stride` elements apart. `lines` and `depth` are the numbers of elements that exist; the others become 0.
  void (*pack)(const void* from, DType dtype, int64_t stride, bool along, int64_t lines, int64_t depth, bool left,
               Word* to);
  // Computes c[m][n] = (accumulate ? c : 0) + a * b. n is a multiple of 16. Both operands are `blocks` blocks deep. From
  // one line of blocks to the next are a_line and b_line words.
  void (*product)(int64_t m, int64_t n, int64_t blocks, const Word* a, int64_t a_line, const Word* b, int64_t b_line,
                  float* c, int64_t c_row, bool accumulate);
};

}  // namespace fettle::cpu
