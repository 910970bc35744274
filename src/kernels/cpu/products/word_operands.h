// Defines the operands of a product of matrices, packed as words for BlockOps::product.
#pragma once

#include <cstdint>

#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/matrix_product.h"
#include "kernels/cpu/products/panels.h"

namespace fettle::cpu {

// `a` is packed once, by tasks that may run at the same time. `b` is packed panel by panel, slice by slice; each slice
// is used at once, so that packed values stay in the caches of this thread's core.
class WordOperands {
 public:
  // The number of columns of a panel, a multiple of the columns that BlockOps::product computes at once.
  static constexpr int64_t kPanel = 64;
  static constexpr int64_t kLongestSlice = 384;  // along k, in words
  static constexpr int64_t kSliceWords = kLongestSlice * kPanel;

  // Takes the first product, or the second one if `second` is true. Reserves memory for the packed `a` at `workspace`,
  // and moves `workspace` to the end of this memory.
  WordOperands(const MatrixProduct& product, const BlockOps& ops, bool second, Word*& workspace);

  // Returns an upper bound of the words that the constructor reserves, which is the same for all instruction sets.
  static int64_t a_words(const MatrixProduct& product, bool second);

  int64_t row_step() const { return ops_->row_step; }  // a task has a multiple of so many rows
  int64_t pack_tasks() const;
  void pack_a(int64_t task) const;
  int64_t words() const { return words_; }  // of a row of `a`, along k
  // Computes the sums of a panel over `count` words along k from the word `first` on, or adds to them if `accumulate`
  // is true. The panel's columns are filled up to a multiple of 16. Rows of sums lie `sum_row` floats apart. `slice` is
  // memory for kSliceWords words. If `result` is not null, the sums are written there, rounded to bf16, in rows as long
  // as those of the product's result; BlockOps::last_product must be available, and `sums` is then scratch memory.
  void multiply(const Panel& panel, int64_t first, int64_t count, Word* slice, float* sums, int64_t sum_row,
                bool accumulate, uint16_t* result = nullptr) const;

 private:
  void pack_b(const Panel& panel, int64_t first, int64_t count, Word* to) const;
  // Fetches a part of the values that pack_b would read into the L2 cache: part `part` of `parts`.
  void fetch_b(const Panel& panel, int64_t first, int64_t count, int64_t part, int64_t parts) const;
  // Rows of `a`, whose words lie `stride` apart: those of a row's neighbours if a_across_, else the rows themselves.
  struct Left {
    int64_t row, rows;
    const Word* words;
    int64_t stride;
  };
  template <typename Use>
  void each_left(int64_t row, int64_t rows, int64_t from, const Use& use) const;
  int64_t a_length() const { return a_across_ ? words_ : m_; }

  ProductOperand a_, b_;
  int64_t m_, n_, k_;
  const BlockOps* ops_;
  // Words of the operands along k, padded to a multiple of BlockOps::word_step, or of 16 if `a` is transposed back.
  int64_t words_;
  bool a_as_it_is_;  // `a` is not packed; the product reads the operand itself
  bool a_across_;    // `a`, packed or not, has a row for each word along k
  Word* packed_a_;
};

}  // namespace fettle::cpu
