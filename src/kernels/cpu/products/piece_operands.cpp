#include "kernels/cpu/products/piece_operands.h"

#include <algorithm>

#include "kernels/cpu/attention_blocks.h"

namespace fettle::cpu {
namespace {

static_assert(Panels::kRows % (2 * kPieceLines) == 0 && PieceOperands::kPanel % kPieceLines == 0);

constexpr int64_t kTaskLines = 64;         // rows of `a` that a task packs
constexpr int64_t kPassWords = 8'000'000;  // of the packed `a` in a pass, if there are several

int64_t blocks_along(int64_t k) {
  return quotient_up(k, kPieceDepth);
}

// Returns the number of blocks along k of a pass. Later passes add to the result, so it must be f32, without a scale.
int64_t pass_depth(const MatrixProduct& p) {
  if (p.result != DType::kF32 || p.scale != 1) return blocks_along(p.k);
  const int64_t fitting = kPassWords / (quotient_up(p.m, kPieceLines) * kPieceBlockWords);
  return std::min(blocks_along(p.k), std::max<int64_t>(1, fitting / PieceOperands::kDepth) * PieceOperands::kDepth);
}

}  // namespace

PieceOperands::PieceOperands(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace)
    : a_(second ? p.a2 : p.a),
      b_(second ? p.b2 : p.b),
      m_(p.m),
      n_(p.n),
      k_(second ? p.k2 : p.k),
      ops_(ops.pieces),
      pass_depth_(second ? blocks_along(p.k2) : pass_depth(p)),
      blocks_(pass_depth_),
      packed_a_(workspace) {
  workspace += a_words(p, second);
}

int64_t PieceOperands::passes(const MatrixProduct& p) {
  return quotient_up(blocks_along(p.k), pass_depth(p));
}

int64_t PieceOperands::a_words(const MatrixProduct& p, bool second) {
  return quotient_up(p.m, kPieceLines) * (second ? blocks_along(p.k2) : pass_depth(p)) * kPieceBlockWords;
}

void PieceOperands::begin_pass(int64_t pass) {
  first_ = pass * pass_depth_;
  blocks_ = std::min(pass_depth_, blocks_along(k_) - first_);
}

int64_t PieceOperands::pack_tasks() const {
  return quotient_up(m_, kTaskLines);
}

// Packs the lines [line, line + lines) and the blocks [first, first + count) of an operand, in the order in which the
// operand is stored. `first` counts from the first block of the pass. Lines of blocks lie `line_words` words apart in
// `to`.
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
