// Implements BlockOps::row_products and BlockOps::attend_one. block_ops_body.h includes this file; the rules of that
// file apply here, too.
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

// Computes elements `i` ... of the sums of weighted values for kHeads heads. `part` reads kVectors vectors.
template <DType kType, int kHeads, int kVectors, typename Part>
void weighted_values(const QueryKeys& keys, const Part& part, int64_t i, const float* weights, float* out) {
  const int64_t count = keys.last - keys.first;
  Floats sums[kHeads][kVectors] = {};
  for (int64_t j = 0; j < count; ++j) {
    Floats values[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      values[v] = part.template read<kType>(keys.v, (keys.first + j) * keys.stride + i + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[h][v] = sums[h][v] + weights[h * count + j] * values[v];
  }
  for (int h = 0; h < kHeads; ++h)
    for (int v = 0; v < kVectors; ++v)
      part.template write<DType::kF32>(out, h * keys.width + i + v * kLanes, sums[h][v]);
}

template <DType kType, int kHeads>
void weighted_heads(const QueryKeys& keys, const float* weights, float* out) {
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= keys.width; i += kVectors * kLanes)
    weighted_values<kType, kHeads, kVectors>(keys, Whole{}, i, weights, out);
  each_vector(keys.width - i, [&](const auto& part, int64_t more) {
    weighted_values<kType, kHeads, 1>(keys, part, i + more, weights, out);
  });
}

template <DType kType>
void attend_one_of(const QueryKeys& keys, float* scores, float* top, float* sum, float* out) {
  const int64_t count = keys.last - keys.first;
  const char* const first =
      static_cast<const char*>(keys.k) + keys.first * keys.stride * (kType == DType::kF32 ? 4 : 2);
  row_products_of<kType, kType>(keys.q, keys.heads, first, keys.stride, count, keys.width, scores, count);
  for (int64_t h = 0; h < keys.heads; ++h) {
    const Weighed w =
        weigh(keys, keys.slopes == nullptr ? 0 : keys.slopes[h], kType == DType::kBF16, scores + h * count);
    top[h] = w.top;
    sum[h] = w.sum;
  }
  int64_t h = 0;
  const auto next = [&](auto run, int heads) {
    run(keys, scores + h * count, out + h * keys.width);
    h += heads;
  };
  while (h + kFewRows <= keys.heads) next(weighted_heads<kType, kFewRows>, kFewRows);
  if (h + 2 <= keys.heads) next(weighted_heads<kType, 2>, 2);
  if (h < keys.heads) next(weighted_heads<kType, 1>, 1);
}

void attend_one(const QueryKeys& keys, float* scores, float* top, float* sum, float* out) {
  (keys.dtype == DType::kBF16 ? attend_one_of<DType::kBF16> : attend_one_of<DType::kF32>)(keys, scores, top, sum, out);
}

}  // namespace
}  // namespace fettle::cpu
