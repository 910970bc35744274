// Defines the operands of a product of matrices, packed as pieces for PieceOps::product.
#pragma once

#include <cstdint>

#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/piece_ops.h"
#include "kernels/cpu/products/matrix_product.h"
#include "kernels/cpu/products/panels.h"

namespace fettle::cpu {

// Has the same public members as WordOperands, with the same meaning.
class PieceOperands {
 public:
  // A panel is wider than that of WordOperands, because packed pieces of `a` are read at four times the speed.
  static constexpr int64_t kPanel = 128;
  static constexpr int64_t kDepth = 6;  // length of a slice along k, in blocks; two lines of it fit into the L1 cache
  static constexpr int64_t kSliceWords = kDepth * kPieceBlockWords * (kPanel / kPieceLines);

  PieceOperands(const MatrixProduct& product, const BlockOps& ops, bool second, Word*& workspace);
  static int64_t a_words(int64_t m, int64_t k);  // words of a packed `a` of m rows and k columns

  int64_t row_step() const { return 2 * kPieceLines; }
  int64_t pack_tasks() const;
  void pack_a(int64_t task) const;
  void multiply(const Panel& panel, Word* slice, float* sums, int64_t sum_row, bool accumulate) const;

 private:
  ProductOperand a_, b_;
  int64_t m_, n_, k_;
  const PieceOps* ops_;
  int64_t blocks_;  // blocks along k
  Word* packed_a_;
};

}  // namespace fettle::cpu
