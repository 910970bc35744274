// Implements BlockOps::row_products, weighted_rows and attend_one. block_ops_body.h includes this file; the rules of
// that file apply here, too.
#pragma once

namespace fettle::cpu {
namespace {

constexpr int kFewRows = kLanes == 16 ? 4 : 2;  // rows of x at once; their sums fit into the vector registers
constexpr int kFewWeights = 4;                  // rows of w at once

// Computes a block of BlockOps::row_products. Each sum has a vector of its own.
template <DType kX, DType kW, int kRows, int kWeights>
void row_products_block(const void* x, const void* w, int64_t w_row, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t kBytes = kW == DType::kF32 ? 4 : 2;
  Floats sums[kRows][kWeights] = {};
  each_vector(k, [&](const auto& part, int64_t i) {
    Floats left[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) left[r] = part.template read<kX>(x, r * k + i);
#pragma GCC unroll 4
    for (int j = 0; j < kWeights; ++j) {
      const Floats right = part.template read<kW>(w, j * w_row + i);
      __builtin_prefetch(static_cast<const char*>(w) + ((kWeights + j) * w_row + i) * kBytes);  // for the next rows
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sums[r][j] = sums[r][j] + left[r] * right;
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kWeights; ++j) c[r * c_row + j] = total(sums[r][j]);
}

template <DType kX, DType kW, int kWeights>
void rows_by_weights(const void* x, int64_t m, const void* w, int64_t w_row, int64_t k, float* c, int64_t c_row) {
  constexpr int64_t kBytes = kX == DType::kF32 ? 4 : 2;
  int64_t r = 0;
  const auto next = [&](auto run, int rows) {
    run(static_cast<const char*>(x) + r * k * kBytes, w, w_row, k, c + r * c_row, c_row);
    r += rows;
  };
  while (r + kFewRows <= m) next(row_products_block<kX, kW, kFewRows, kWeights>, kFewRows);
  if (r + 2 <= m) next(row_products_block<kX, kW, 2, kWeights>, 2);
  if (r < m) next(row_products_block<kX, kW, 1, kWeights>, 1);
}

template <DType kX, DType kW>
void row_products_of(const void* x, int64_t m, const void* w, int64_t w_row, int64_t rows, int64_t k, float* c,
                     int64_t c_row) {
  constexpr int64_t kBytes = kW == DType::kF32 ? 4 : 2;
  const auto weights = [&](int64_t j) { return static_cast<const char*>(w) + j * w_row * kBytes; };
  int64_t j = 0;
  for (; j + kFewWeights <= rows; j += kFewWeights)
    rows_by_weights<kX, kW, kFewWeights>(x, m, weights(j), w_row, k, c + j, c_row);
  for (; j < rows; ++j) rows_by_weights<kX, kW, 1>(x, m, weights(j), w_row, k, c + j, c_row);
}

void row_products(const void* x, DType x_type, int64_t m, const void* w, DType w_type, int64_t rows, int64_t k,
                  float* c, int64_t c_row) {
  constexpr DType kWide = DType::kF32, kNarrow = DType::kBF16;
  const auto run = x_type == kWide
                       ? (w_type == kWide ? row_products_of<kWide, kWide> : row_products_of<kWide, kNarrow>)
                       : (w_type == kWide ? row_products_of<kNarrow, kWide> : row_products_of<kNarrow, kNarrow>);
  run(x, m, w, k, rows, k, c, c_row);
}

// Turns the products of one query and the keys into weights, exp(score - top). Returns top and the sum of the weights.
struct Weighed {
  float top, sum;
};
Weighed weigh(const QueryKeys& keys, float slope, bool round, float* scores) {
  const int64_t count = keys.last - keys.first;
  const Ints lanes = first_indices();
  Floats most = spread(kHidden);
  each_vector(count, [&](const auto& part, int64_t i) {
    Floats x = part.template read<DType::kF32>(scores, i) * keys.scale;
    if (keys.softcap != 0) x = keys.softcap * hyperbolic_tangent(x / keys.softcap);
    if (slope != 0) {
      const Ints distance = static_cast<int32_t>(keys.position - keys.first - i) - lanes;
      x = x - slope * __builtin_convertvector(distance, Floats);
    }
    part.template write<DType::kF32>(scores, i, x);
    x = lanes < static_cast<int32_t>(count - i) ? x : spread(kHidden);
    most = x > most ? x : most;
  });
  const float top = largest(most);
  Floats sum{};
  each_vector(count, [&](const auto& part, int64_t i) {
    Floats weight = exponential(part.template read<DType::kF32>(scores, i) - top);
    weight = lanes < static_cast<int32_t>(count - i) ? weight : Floats{};
    sum = sum + weight;
    part.template write<DType::kF32>(scores, i, round ? rounded(weight) : weight);
  });
  return {top, total(sum)};
}

// The operands of BlockOps::weighted_rows.
struct WeightedRows {
  const float* weights;
  int64_t weight_row;
  const void* x;
  int64_t stride, rows;
  float* c;
  int64_t c_row;
  bool accumulate;
};

// Computes the elements i to i + kVectors * kLanes of kCount sums. `part` reads and writes vectors.
template <DType kType, int kCount, int kVectors, typename Part>
void weighted_block(const WeightedRows& w, const Part& part, int64_t i) {
  float* const c = w.c;
  const int64_t c_row = w.c_row;
  Floats sums[kCount][kVectors] = {};
  if (w.accumulate)
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = part.template read<DType::kF32>(c, h * c_row + i + v * kLanes);
  for (int64_t j = 0; j < w.rows; ++j) {
    Floats values[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) values[v] = part.template read<kType>(w.x, j * w.stride + i + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = sums[h][v] + w.weights[h * w.weight_row + j] * values[v];
  }
#pragma GCC unroll 4
  for (int h = 0; h < kCount; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) part.template write<DType::kF32>(c, h * c_row + i + v * kLanes, sums[h][v]);
}

template <DType kType, int kCount>
void weighted_rows_by(const WeightedRows& w, int64_t columns) {
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= columns; i += kVectors * kLanes)
    weighted_block<kType, kCount, kVectors>(w, Whole{}, i);
  each_vector(columns - i,
              [&](const auto& part, int64_t more) { weighted_block<kType, kCount, 1>(w, part, i + more); });
}

template <DType kType>
void weighted_rows_of(WeightedRows w, int64_t count, int64_t columns) {
  const auto next = [&](auto run, int rows) {
    run(w, columns);
    w.weights += rows * w.weight_row;
    w.c += rows * w.c_row;
    count -= rows;
  };
  while (count >= 4) next(weighted_rows_by<kType, 4>, 4);
  if (count >= 2) next(weighted_rows_by<kType, 2>, 2);
  if (count >= 1) next(weighted_rows_by<kType, 1>, 1);
}

void weighted_rows(const float* weights, int64_t weight_row, int64_t count, const void* x, DType dtype, int64_t stride,
                   int64_t rows, int64_t columns, float* c, int64_t c_row, bool accumulate) {
  const auto run = dtype == DType::kBF16 ? weighted_rows_of<DType::kBF16> : weighted_rows_of<DType::kF32>;
  run({weights, weight_row, x, stride, rows, c, c_row, accumulate}, count, columns);
}

template <DType kType>
void attend_one_of(const QueryKeys& keys, float* scores, float* top, float* sum, float* out) {
  const int64_t count = keys.last - keys.first;
  const auto from_first = [&](const void* rows) {
    return static_cast<const char*>(rows) + keys.first * keys.stride * (kType == DType::kF32 ? 4 : 2);
  };
  row_products_of<kType, kType>(keys.q, keys.heads, from_first(keys.k), keys.stride, count, keys.width, scores, count);
  for (int64_t h = 0; h < keys.heads; ++h) {
    const Weighed w =
        weigh(keys, keys.slopes == nullptr ? 0 : keys.slopes[h], kType == DType::kBF16, scores + h * count);
    top[h] = w.top;
    sum[h] = w.sum;
  }
  weighted_rows_of<kType>({scores, count, from_first(keys.v), keys.stride, count, out, keys.width, false}, keys.heads,
                          keys.width);
}

void attend_one(const QueryKeys& keys, float* scores, float* top, float* sum, float* out) {
  (keys.dtype == DType::kBF16 ? attend_one_of<DType::kBF16> : attend_one_of<DType::kF32>)(keys, scores, top, sum, out);
}

}  // namespace
}  // namespace fettle::cpu
