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
  workspace += a_words(m_, k_);
}

int64_t PieceOperands::a_words(int64_t m, int64_t k) {
  return quotient_up(m, kPieceLines) * quotient_up(k, kPieceDepth) * kPieceBlockWords;
}

int64_t PieceOperands::pack_tasks() const {
  return quotient_up(m_, kTaskLines);
}

void PieceOperands::pack_a(int64_t task) const {
  const int64_t end = std::min((task + 1) * kTaskLines, m_);
  for (int64_t block = 0; block < blocks_; ++block)
    for (int64_t row = task * kTaskLines; row < end; row += kPieceLines) {
      const int64_t first = block * kPieceDepth;
      ops_->pack(at(a_.data, a_.dtype, a_.turned ? first * m_ + row : row * k_ + first), a_.dtype,
                 a_.turned ? m_ : k_, !a_.turned, std::min(kPieceLines, m_ - row), std::min(kPieceDepth, k_ - first),
                 true, packed_a_ + (row / kPieceLines * blocks_ + block) * kPieceBlockWords);
    }
}

void PieceOperands::multiply(const Panel& panel, Word* slice, float* sums, int64_t sum_row, bool accumulate) const {
  for (int64_t from = 0; from < blocks_; from += kDepth) {
    const int64_t depth = std::min(kDepth, blocks_ - from), line = depth * kPieceBlockWords;
    for (int64_t block = 0; block < depth; ++block)
      for (int64_t i = 0; i < panel.columns; i += kPieceLines) {
        const int64_t first = (from + block) * kPieceDepth, column = panel.column + i;
        ops_->pack(at(b_.data, b_.dtype, b_.turned ? column * k_ + first : first * n_ + column), b_.dtype,
                   b_.turned ? k_ : n_, b_.turned, std::min(kPieceLines, panel.columns - i),
                   std::min(kPieceDepth, k_ - first), false, slice + i / kPieceLines * line + block * kPieceBlockWords);
      }
    ops_->product(panel.rows, panel.width(), depth,
                  packed_a_ + (panel.row / kPieceLines * blocks_ + from) * kPieceBlockWords, blocks_ * kPieceBlockWords,
                  slice, line, sums, sum_row, accumulate || from > 0);
  }
}

}  // namespace fettle::cpu
