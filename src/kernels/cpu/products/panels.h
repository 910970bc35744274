// Defines how a product of matrices is divided into panels of its result.
#pragma once

#include <cstdint>

namespace fettle::cpu {

inline int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// Rows [row, row + rows) and columns [column, column + columns) of the result.
struct Panel {
  int64_t row, rows, column, columns;
  int64_t width() const { return quotient_up(columns, 16) * 16; }  // the columns, filled up to whole vectors
};

// Divides a result [m, n] into panels, each of which is a task. A panel has all rows, or, if the result has many rows,
// a range of them. If the number of ranges of columns is not a multiple of the number of threads, the last ones
// (ranges % threads) are divided into smaller ranges of rows, so that all threads have work.
//
// The panels of a tall result follow each other row by row, so that the rows of the left operand stay in the caches.
// The others follow each other column by column.
class Panels {
 public:
  static constexpr int64_t kRows = 576;  // largest number of rows; the sums of these rows fit into the L2 cache

  // `columns` is the number of columns of a panel. The number of rows of a panel is a multiple of `step`, except in the
  // last panels.
  Panels(int64_t m, int64_t n, int64_t columns, int64_t step, int64_t threads);
  int64_t count() const { return whole_ * parts_of_whole_ + (ranges_ - whole_) * parts_of_last_; }
  Panel at(int64_t task) const;

 private:
  int64_t m_, n_, columns_, ranges_;
  bool by_rows_;
  int64_t whole_, row_step_, parts_of_whole_, last_step_, parts_of_last_;
};

}  // namespace fettle::cpu
