#include "kernels/cpu/products/panels.h"

#include <algorithm>

namespace fettle::cpu {

Panels::Panels(int64_t m, int64_t n, int64_t columns, int64_t step, int64_t threads)
    : m_(m), n_(n), columns_(columns), ranges_(quotient_up(n, columns)), by_rows_(m > n) {
  auto even = [&](int64_t parts) { return std::min(kRows, quotient_up(quotient_up(m, parts), step) * step); };
  row_step_ = even(quotient_up(m, kRows / step * step));
  parts_of_whole_ = quotient_up(m, row_step_);
  threads = std::max<int64_t>(1, threads);
  const int64_t last = ranges_ % threads;
  whole_ = ranges_ - last;
  last_step_ = std::min(row_step_, even(last == 0 ? 1 : quotient_up(threads, last)));
  parts_of_last_ = quotient_up(m, last_step_);
}

Panel Panels::at(int64_t task) const {
  const bool last = task >= whole_ * parts_of_whole_;
  if (last) task -= whole_ * parts_of_whole_;
  const int64_t parts = last ? parts_of_last_ : parts_of_whole_, step = last ? last_step_ : row_step_;
  const int64_t ranges = last ? ranges_ - whole_ : whole_;
  const int64_t part = by_rows_ ? task / ranges : task % parts, range = by_rows_ ? task % ranges : task / parts;
  const int64_t row = part * step, column = ((last ? whole_ : 0) + range) * columns_;
  return {.row = row, .rows = std::min(step, m_ - row), .column = column, .columns = std::min(columns_, n_ - column)};
}

}  // namespace fettle::cpu
