#include "kernels/cpu/products/piece_operands.h"

#include <algorithm>

#include "kernels/cpu/attention_blocks.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kTaskLines = 64;  // rows of `a` that a task packs

}  // namespace

PieceOperands::PieceOperands(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace)
    : a_(second ? p.a2 : p.a), b_(second ? p.b2 : p.b), m_(p.m), n_(p.n), k_(second ? p.k2 : p.k), ops_(ops.pieces) {
  blocks_ = quotient_up(k_, kPieceDepth);
  packed_a_ = workspace;
  workspace += a_words(p, second);
}

// Later passes add to the result, so it must be f32, without a scale.
int64_t PieceOperands::passes(const MatrixProduct& p) {
  return p.result == DType::kF32 && p.scale == 1 ? quotient_up(p.k, kPassDepth * kPieceDepth) : 1;
}

int64_t PieceOperands::a_words(const MatrixProduct& p, bool second) {
  const int64_t blocks = quotient_up(second ? p.k2 : p.k, kPieceDepth);
  return quotient_up(p.m, kPieceLines) * (!second && passes(p) > 1 ? kPassDepth : blocks) * kPieceBlockWords;
}

void PieceOperands::begin_pass(int64_t pass) {
  first_ = pass * kPassDepth;
  blocks_ = std::min(kPassDepth, quotient_up(k_, kPieceDepth) - first_);
}

int64_t PieceOperands::pack_tasks() const {
  return quotient_up(m_, kTaskLines);
}

// Packs the lines [line, line + lines) and the blocks [first, first + count) of an operand, in the order in which they
// are stored. Lines lie `line_words` words apart in `to`.
void PieceOperands::pack(const ProductOperand& operand, bool left, int64_t line, int64_t lines, int64_t first,
                         int64_t count, Word* to, int64_t line_words) const {
  const bool along = left != operand.turned;  // the elements of a line are neighbours
  const int64_t stride = along ? k_ : (left ? m_ : n_);
  const auto pack_block = [&](int64_t i, int64_t block) {
    const int64_t begin = (first_ + first + block) * kPieceDepth;
    ops_->pack(at(operand.data, operand.dtype, along ? (line + i) * stride + begin : begin * stride + line + i),
               operand.dtype, stride, along, std::min(kPieceLines, lines - i), std::min(kPieceDepth, k_ - begin), left,
               to + i / kPieceLines * line_words + block * kPieceBlockWords);
  };
  if (along) {
    for (int64_t i = 0; i < lines; i += kPieceLines)
      for (int64_t block = 0; block < count; ++block) pack_block(i, block);
  } else {
    for (int64_t block = 0; block < count; ++block)
      for (int64_t i = 0; i < lines; i += kPieceLines) pack_block(i, block);
  }
}

void PieceOperands::pack_a(int64_t task) const {
  const int64_t row = task * kTaskLines, line_words = blocks_ * kPieceBlockWords;
  pack(a_, true, row, std::min(kTaskLines, m_ - row), 0, blocks_, packed_a_ + row / kPieceLines * line_words,
       line_words);
}

void PieceOperands::multiply(const Panel& panel, Word* slice, float* sums, bool accumulate) const {
  for (int64_t from = 0; from < blocks_; from += kDepth) {
    const int64_t depth = std::min(kDepth, blocks_ - from), line = depth * kPieceBlockWords;
    pack(b_, false, panel.column, panel.columns, from, depth, slice, line);
    ops_->product(quotient_up(panel.rows, kPieceLines), panel.width() / kPieceLines, depth,
                  packed_a_ + (panel.row / kPieceLines * blocks_ + from) * kPieceBlockWords, blocks_ * kPieceBlockWords,
                  slice, line, sums, accumulate || from > 0);
  }
}

}  // namespace fettle::cpu
