// Implements BlockOps::product and last_product. block_ops_body.h includes this file; the rules of that file apply
// here, too.
#pragma once

namespace fettle::cpu {
namespace {

// Where a product writes its sums rounded to bf16, if `to` is not null.
struct Rounded {
  uint16_t* to = nullptr;
  int64_t row = 0;
  Rounded from(int64_t r, int64_t column = 0) const {
    return to == nullptr ? *this : Rounded{to + r * row + column, row};
  }
};

constexpr int64_t kLineWords = 16;  // of a line of the cache

// Computes kRows rows of BlockOps::product, kVectors vectors wide. If there are several vectors, the cache meanwhile
// fetches the next kRows rows of `a`, unless `a` is transposed, and the next kRows rows of `c`, unless they follow each
// other without gaps. The processor does not foresee them. There may be no such rows; fetching from any address is
// allowed. The sums go to `c`, or to `rounded` if it is somewhere.
template <int kRows, int kVectors, bool kTransposed>
void panel(int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c, int64_t c_row,
           bool accumulate, Rounded rounded) {
  Floats sum[kRows][kVectors];
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? load(c + r * c_row + v * kLanes) : Floats{};
  for (int64_t i = 0; i < k; ++i) {
    if (!kTransposed && kVectors > 1 && i % kLineWords == 0)
#pragma GCC unroll 24
      for (int r = 0; r < kRows; ++r) __builtin_prefetch(a + (kRows + r) * a_row + i);
    if (kVectors > 1 && i % kLineWords == kLineWords / 2 && i < kRows * kLineWords && c_row > kVectors * kLanes)
#pragma GCC unroll 8
      for (int64_t word = 0; word < kVectors * kLanes; word += kLineWords)
        __builtin_prefetch(c + (kRows + i / kLineWords) * c_row + word);
    Floats right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + i * b_row + v * kLanes);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      const Word* left = kTransposed ? a + i * a_row + r : a + r * a_row + i;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_add(left, right[v], sum[r][v]);
    }
  }
  if (rounded.to != nullptr) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) store_rounded(rounded.to + r * rounded.row + v * kLanes, sum[r][v]);
    return;
  }
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + r * c_row + v * kLanes, sum[r][v]);
}

// The size of a panel, in vectors and in rows. It is the largest size at which the sums and the vectors of the right
// operand fit into registers.
constexpr int kPanelVectors = kLanes == 16 ? 4 : 2;
constexpr int kPanelRows = 6;
constexpr int kTallRows = kLanes == 16 ? 24 : 12;  // rows of a panel that is one vector wide

template <int kVectors, bool kTransposed>
void columns_product(int64_t m, int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c,
                     int64_t c_row, bool accumulate, Rounded rounded) {
  const int64_t step = kTransposed ? 1 : a_row;
  int64_t r = 0;
  if constexpr (kVectors == 1)
    for (; r + kTallRows <= m; r += kTallRows)
      panel<kTallRows, kVectors, kTransposed>(k, a + r * step, a_row, b, b_row, c + r * c_row, c_row, accumulate,
                                              rounded.from(r));
  for (; r + kPanelRows <= m; r += kPanelRows)
    panel<kPanelRows, kVectors, kTransposed>(k, a + r * step, a_row, b, b_row, c + r * c_row, c_row, accumulate,
                                             rounded.from(r));
  a += r * step;
  c += r * c_row;
  rounded = rounded.from(r);
  switch (m - r) {
    case 5: panel<5, kVectors, kTransposed>(k, a, a_row, b, b_row, c, c_row, accumulate, rounded); break;
    case 4: panel<4, kVectors, kTransposed>(k, a, a_row, b, b_row, c, c_row, accumulate, rounded); break;
    case 3: panel<3, kVectors, kTransposed>(k, a, a_row, b, b_row, c, c_row, accumulate, rounded); break;
    case 2: panel<2, kVectors, kTransposed>(k, a, a_row, b, b_row, c, c_row, accumulate, rounded); break;
    case 1: panel<1, kVectors, kTransposed>(k, a, a_row, b, b_row, c, c_row, accumulate, rounded); break;
    default: break;
  }
}

template <bool kTransposed>
void product_of(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c,
                int64_t c_row, bool accumulate, Rounded rounded) {
  constexpr int64_t kWidth = kPanelVectors * kLanes;
  int64_t column = 0;
  for (; column + kWidth <= n; column += kWidth)
    columns_product<kPanelVectors, kTransposed>(m, k, a, a_row, b + column, b_row, c + column, c_row, accumulate,
                                                rounded.from(0, column));
  for (; column < n; column += kLanes)
    columns_product<1, kTransposed>(m, k, a, a_row, b + column, b_row, c + column, c_row, accumulate,
                                    rounded.from(0, column));
}

void product(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
             int64_t b_row, float* c, int64_t c_row, bool accumulate) {
  (a_transposed ? product_of<true> : product_of<false>)(m, n, k, a, a_row, b, b_row, c, c_row, accumulate, {});
}

void last_product(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
                  int64_t b_row, float* c, int64_t c_row, bool accumulate, uint16_t* to, int64_t to_row) {
  (a_transposed ? product_of<true> : product_of<false>)(m, n, k, a, a_row, b, b_row, c, c_row, accumulate,
                                                        {to, to_row});
}

}  // namespace
}  // namespace fettle::cpu
