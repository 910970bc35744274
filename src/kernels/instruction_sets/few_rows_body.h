// Implements BlockOps::row_products. block_ops_body.h includes this file; the rules of that file apply here, too.
#pragma once

namespace fettle::cpu {
namespace {

constexpr int kFewRows = kLanes == 16 ? 4 : 2;  // rows of x at once; their sums fit into the vector registers
constexpr int kFewWeights = 4;                  // rows of w at once

// Computes a block of BlockOps::row_products. Each sum has a vector of its own.
template <DType kX, DType kW, int kRows, int kWeights>
void row_products_block(const void* x, const void* w, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t kBytes = kW == DType::kF32 ? 4 : 2;
  Floats sums[kRows][kWeights] = {};
  each_vector(k, [&](const auto& part, int64_t i) {
    Floats left[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) left[r] = part.template read<kX>(x, r * k + i);
#pragma GCC unroll 4
    for (int j = 0; j < kWeights; ++j) {
      const Floats right = part.template read<kW>(w, j * k + i);
      __builtin_prefetch(static_cast<const char*>(w) + ((kWeights + j) * k + i) * kBytes);  // for the next rows
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][j] = sums[r][j] + left[r] * right;
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kWeights; ++j) c[r * c_row + j] = total(sums[r][j]);
}

template <DType kX, DType kW, int kWeights>
void rows_by_weights(const void* x, int64_t m, const void* w, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t kBytes = kX == DType::kF32 ? 4 : 2;
  int64_t r = 0;
  const auto next = [&](auto run, int rows) {
    run(static_cast<const char*>(x) + r * k * kBytes, w, k, c + r * c_row, c_row);
    r += rows;
  };
  while (r + kFewRows <= m) next(row_products_block<kX, kW, kFewRows, kWeights>, kFewRows);
  if (r + 2 <= m) next(row_products_block<kX, kW, 2, kWeights>, 2);
  if (r < m) next(row_products_block<kX, kW, 1, kWeights>, 1);
}

template <DType kX, DType kW>
void row_products_of(const void* x, int64_t m, const void* w, int64_t rows, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t kBytes = kW == DType::kF32 ? 4 : 2;
  const auto weights = [&](int64_t j) { return static_cast<const char*>(w) + j * k * kBytes; };
  int64_t j = 0;
  for (; j + kFewWeights <= rows; j += kFewWeights)
    rows_by_weights<kX, kW, kFewWeights>(x, m, weights(j), k, c + j, c_row);
  for (; j < rows; ++j) rows_by_weights<kX, kW, 1>(x, m, weights(j), k, c + j, c_row);
}

void row_products(const void* x, DType x_type, int64_t m, const void* w, DType w_type, int64_t rows, int64_t k,
                  float* c, int64_t c_row) {
  constexpr DType kWide = DType::kF32, kNarrow = DType::kBF16;
  const auto run = x_type == kWide
                       ? (w_type == kWide ? row_products_of<kWide, kWide> : row_products_of<kWide, kNarrow>)
                       : (w_type == kWide ? row_products_of<kNarrow, kWide> : row_products_of<kNarrow, kNarrow>);
  run(x, m, w, rows, k, c, c_row);
}

}  // namespace
}  // namespace fettle::cpu
