// Defines the operands of a product of matrices, packed as tiles for TileOps::product.
#pragma once

#include <cstdint>

#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/matrix_product.h"
#include "kernels/cpu/products/panels.h"
#include "kernels/cpu/tile_ops.h"

namespace fettle::cpu {

// Like WordOperands, but panels are wider. With three pieces, `a` may be packed in several passes over k, so that the
// packed `a` takes at most 32 MB or a few blocks for each row. With one piece, `a` may be read as it is.
class TileOperands {
 public:
  // Panels are wider than those of WordOperands: the product needs less time, and the packed `a` is read once for each
  // panel.
  static constexpr int64_t kPanel = 256;
  static constexpr int64_t kTiles = 18;  // tiles of a line of a slice; two lines fit into the L1 cache
  static constexpr int64_t kShort = 3;   // tiles of a line that a slice may have in addition
  static constexpr int64_t kSliceWords = (kTiles + kShort) * kTileWords * (kPanel / kTileLines);

  // `pieces` is TileOps::pieces.
  static int64_t passes(const MatrixProduct& product, int64_t pieces);
  static int64_t a_words(const MatrixProduct& product, int64_t pieces, bool second);  // words of the packed `a`

  TileOperands(const MatrixProduct& product, const BlockOps& ops, bool second, Word*& workspace);
  void begin_pass(int64_t pass);  // the members below then use the pass's range of k; needed if there are several

  int64_t row_step() const { return 2 * kTileLines; }
  int64_t pack_tasks() const;
  void pack_a(int64_t task) const;
  // Returns true if multiply() of other operands can add the product of these ones.
  bool is_short() const { return blocks_ * ops_->pieces <= kShort; }
  // Computes the sums of a panel whose columns are filled up to a multiple of 16, and its rows to a multiple of
  // kTileLines. `slice` is memory for kSliceWords words. If `second` is not null, its product is added before the sums
  // are written; it must be short.
  void multiply(const Panel& panel, Word* slice, const TileResult& result, const TileOperands* second = nullptr) const;

 private:
  // Packs `depth` blocks along k of the panel's columns of b as a slice.
  TileProduct pack_slice(const Panel& panel, int64_t first, int64_t depth, Word* to) const;
  LeftTiles left_tiles(int64_t row, int64_t block) const;
  void pack(const ProductOperand& operand, bool left, int64_t line, int64_t lines, int64_t first, int64_t count,
            Word* to, int64_t line_words) const;

  ProductOperand a_, b_;
  int64_t m_, n_, k_;
  const TileOps* ops_;
  int64_t block_words_;         // words of a packed block
  int64_t pass_depth_;          // blocks along k of a pass
  int64_t first_ = 0, blocks_;  // of this pass: the first block along k, and the number of blocks
  bool a_as_it_is_;             // `a` is not packed; the product reads the operand itself
  Word* packed_a_;
};

}  // namespace fettle::cpu
