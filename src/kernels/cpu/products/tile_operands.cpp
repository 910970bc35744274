#include "kernels/cpu/products/tile_operands.h"

#include <algorithm>

#include "kernels/cpu/attention/attention_blocks.h"

namespace fettle::cpu {
namespace {

static_assert(Panels::kRows % (2 * kTileLines) == 0 && TileOperands::kPanel % kTileLines == 0);

constexpr int64_t kTaskLines = 64;  // rows of `a` that a task packs
// A bf16 operand `a` that needs no padding is packed only for a result that is wide enough. Packing reads and writes
// `a` once; tiles of rows that lie far apart are slower to load, which counts once for each panel.
constexpr int64_t kWideEnough = 1024;
constexpr int64_t kPassWords = 8'000'000;  // of the packed `a` in a pass, if there are several

int64_t blocks_along(int64_t k) {
  return quotient_up(k, kTileDepth);
}

// Returns the number of blocks along k of a pass. Later passes add to the result, so it must be f32, without a scale. A
// packed `a` of bf16 takes less memory than product_workspace() reserves anyway.
int64_t pass_depth(const MatrixProduct& p, int64_t pieces) {
  if (pieces == 1 || p.result != DType::kF32 || p.scale != 1) return blocks_along(p.k);
  const int64_t tiles = kPassWords / (quotient_up(p.m, kTileLines) * kTileWords);  // of a line
  return std::min(blocks_along(p.k),
                  std::max<int64_t>(1, tiles / TileOperands::kTiles) * (TileOperands::kTiles / pieces));
}

}  // namespace

TileOperands::TileOperands(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace)
    : a_(second ? p.a2 : p.a),
      b_(second ? p.b2 : p.b),
      m_(p.m),
      n_(p.n),
      k_(second ? p.k2 : p.k),
      ops_(ops.tiles),
      block_words_(ops_->pieces * kTileWords),
      pass_depth_(second ? blocks_along(p.k2) : pass_depth(p, ops_->pieces)),
      blocks_(pass_depth_),
      a_as_it_is_(ops_->pieces == 1 && !a_.turned && n_ < kWideEnough && m_ % kTileLines == 0 && k_ % kTileDepth == 0),
      packed_a_(workspace) {
  workspace += a_words(p, ops_->pieces, second);
}

int64_t TileOperands::passes(const MatrixProduct& p, int64_t pieces) {
  return quotient_up(blocks_along(p.k), pass_depth(p, pieces));
}

int64_t TileOperands::a_words(const MatrixProduct& p, int64_t pieces, bool second) {
  const int64_t depth = second ? blocks_along(p.k2) : pass_depth(p, pieces);
  return quotient_up(p.m, kTileLines) * depth * pieces * kTileWords;
}

void TileOperands::begin_pass(int64_t pass) {
  first_ = pass * pass_depth_;
  blocks_ = std::min(pass_depth_, blocks_along(k_) - first_);
}

int64_t TileOperands::pack_tasks() const {
  return a_as_it_is_ ? 0 : quotient_up(m_, kTaskLines);
}

// Packs the lines [line, line + lines) and the blocks [first, first + count) of an operand, in the order in which the
// operand is stored. `first` counts from the first block of the pass. Lines of blocks lie `line_words` words apart in
// `to`.
void TileOperands::pack(const ProductOperand& operand, bool left, int64_t line, int64_t lines, int64_t first,
                        int64_t count, Word* to, int64_t line_words) const {
  const bool along = left != operand.turned;  // the elements of a line are neighbours
  const int64_t stride = along ? k_ : (left ? m_ : n_);
  // If lines are stored across, all of them are packed together, since a line of the cache has elements of many.
  const int64_t together = along ? kTileLines : lines;
  for (int64_t i = 0; i < lines; i += together)
    for (int64_t block = 0; block < count; ++block) {
      const int64_t begin = (first_ + first + block) * kTileDepth;
      ops_->pack(at(operand.data, operand.dtype, along ? (line + i) * stride + begin : begin * stride + line + i),
                 operand.dtype, stride, along, std::min(together, lines - i), std::min(kTileDepth, k_ - begin), left,
                 to + i / kTileLines * line_words + block * block_words_, line_words);
    }
}

void TileOperands::pack_a(int64_t task) const {
  const int64_t row = task * kTaskLines, line_words = blocks_ * block_words_;
  pack(a_, true, row, std::min(kTaskLines, m_ - row), 0, blocks_, packed_a_ + row / kTileLines * line_words,
       line_words);
}

// Returns `a` from this row and this block of the pass on. `row` is a multiple of kTileLines.
LeftTiles TileOperands::left_tiles(int64_t row, int64_t block) const {
  if (a_as_it_is_) {
    const int64_t row_words = k_ / 2, block_words = kTileDepth / 2;
    return {static_cast<const Word*>(a_.data) + row * row_words + (first_ + block) * block_words, row_words,
            block_words, kTileLines * row_words};
  }
  const int64_t line = blocks_ * block_words_;
  return {packed_a_ + row / kTileLines * line + block * block_words_, kTileDepth / 2, block_words_, line};
}

TileProduct TileOperands::pack_slice(const Panel& panel, int64_t first, int64_t depth, Word* to) const {
  const int64_t line = depth * block_words_;
  pack(b_, false, panel.column, panel.columns, first, depth, to, line);
  return {.blocks = depth, .a = left_tiles(panel.row, first), .b = to, .b_line = line};
}

void TileOperands::multiply(const Panel& panel, Word* slice, const TileResult& result,
                            const TileOperands* second) const {
  const int64_t slice_depth = kTiles / ops_->pieces;
  Word* const second_slice = slice + kTiles * kTileWords * (kPanel / kTileLines);
  for (int64_t from = 0; from < blocks_; from += slice_depth) {
    const int64_t depth = std::min(slice_depth, blocks_ - from);
    const bool last = from + depth == blocks_;
    const TileProduct first = pack_slice(panel, from, depth, slice);
    TileResult part = result;
    part.accumulate = result.accumulate || from > 0;
    if (!last) part.rounded = nullptr;
    ops_->product(
        quotient_up(panel.rows, kTileLines), panel.width() / kTileLines, first,
        last && second != nullptr ? second->pack_slice(panel, 0, second->blocks_, second_slice) : TileProduct{}, part);
  }
}

}  // namespace fettle::cpu
