// Implements one BlockOps table for the instruction set for which the including file is compiled.
//
// The including file defines FETTLE_LANES (number of f32 values in a vector), and FETTLE_PAIRS when an instruction
// multiplies pairs of bf16. Everything in this file has internal linkage and uses no inline function or template of the
// standard library. Otherwise the linker might use this file's copy of a shared function everywhere, also on CPUs that
// lack its instructions. (logf is compiled elsewhere, so it may be called.)
#pragma once

#ifdef FETTLE_PAIRS
#include <immintrin.h>
#endif

#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

constexpr int64_t kLanes = FETTLE_LANES;
constexpr int64_t kBytes = kLanes * 4;
// Vector types of GCC and Clang. The `Loose` types may alias any type. They need only the alignment of one element, or
// of half an element for LooseInts, which also loads pairs of 16-bit elements.
typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Bits __attribute__((vector_size(kBytes)));  // sums wrap around
typedef float LooseFloats __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef int32_t LooseInts __attribute__((vector_size(kBytes), aligned(2), may_alias));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef uint16_t LooseHalves __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));

constexpr float kHidden = -3e38F;

inline Floats load(const void* from) {
  return *static_cast<const LooseFloats*>(from);
}
inline Ints load_ints(const void* from) {
  return *static_cast<const LooseInts*>(from);
}
inline void store(void* to, Floats value) {
  *static_cast<LooseFloats*>(to) = value;
}
inline void store(void* to, Ints value) {
  *static_cast<LooseInts*>(to) = value;
}
inline Floats spread(float value) {
  return value - Floats{};
}
inline Ints spread(int32_t value) {
  return value - Ints{};
}
inline Floats floats_of(Ints x) {
  return (Floats)x;
}
inline Ints first_indices() {
  Ints out{};
  for (int32_t i = 0; i < kLanes; ++i) out[i] = i;
  return out;
}
template <typename Combine>
inline float folded(Floats x, Combine combine) {
  typedef float Four __attribute__((vector_size(16)));
  Four parts[kLanes / 4];
  __builtin_memcpy(parts, &x, sizeof x);
  for (int64_t width = kLanes / 8; width > 0; width /= 2)
    for (int64_t i = 0; i < width; ++i) parts[i] = combine(parts[i], parts[i + width]);
  const float low = combine(parts[0][0], parts[0][2]), high = combine(parts[0][1], parts[0][3]);
  return combine(low, high);
}
inline float largest(Floats x) {
  return folded(x, [](auto a, auto b) { return a > b ? a : b; });
}
inline float total(Floats x) {
  return folded(x, [](auto a, auto b) { return a + b; });
}

// Returns e^x with an error of at most 2 ulp for x <= 88; returns 0 below -87. The method is that of Cephes' expf.
inline Floats exponential(Floats x) {
  const Floats magic = spread(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504088896341F + magic;
  const Floats n = shifted - magic;
  Floats r = x - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  Floats p = spread(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Floats power = (Floats)(((Bits)shifted << 23) + (uint32_t{127} << 23));
  return x < -87.0F ? Floats{} : p * power;
}

inline Floats hyperbolic_tangent(Floats x) {
  x = x > 10.0F ? spread(10.0F) : x;
  x = x < -10.0F ? spread(-10.0F) : x;
  return 1.0F - 2.0F / (exponential(x + x) + 1.0F);
}

// Rounds x to bf16. Returns the bf16 bits in the upper half of each element. The lower half is not defined.
inline Ints rounded_bits(Floats x) {
  const Bits bits = (Bits)x;
  return (Ints)(bits + 0x7fff + ((bits >> 16) & 1));
}
inline Floats rounded(Floats x) {
  return floats_of(rounded_bits(x) & spread(static_cast<int32_t>(0xffff0000U)));
}
inline uint32_t rounded_bits(float x) {
  Word word{x};
  return word.pair + 0x7fff + ((word.pair >> 16) & 1);
}
inline float widened(uint16_t x) {
  Word word;
  word.pair = static_cast<uint32_t>(x) << 16;
  return word.f32;
}
// Rounds `low` and `high` to bf16 and combines them into words.
inline Ints paired(Floats low, Floats high) {
  return ((rounded_bits(low) >> 16) & 0xffff) | (rounded_bits(high) & spread(static_cast<int32_t>(0xffff0000U)));
}

// Returns sum + left * right. With FETTLE_PAIRS, each word has two bf16 values, and both products are added.
inline Floats multiply_add(const Word* left, Floats right, Floats sum) {
#ifdef FETTLE_PAIRS
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)spread(static_cast<int32_t>(left->pair)), (__m512bh)right);
#else
  return sum + left->f32 * right;
#endif
}

// Writes x to `to`, rounded to bf16.
inline void store_rounded(uint16_t* to, Floats x) {
#ifdef FETTLE_PAIRS
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
  *reinterpret_cast<LooseHalves*>(to) = __builtin_convertvector((Bits)rounded_bits(x) >> 16, Halves);
#endif
}

}  // namespace
}  // namespace fettle::cpu

#include "kernels/instruction_sets/product_body.h"

namespace fettle::cpu {
namespace {

inline float element(const void* from, DType dtype, int64_t i) {
  return dtype == DType::kBF16 ? widened(static_cast<const uint16_t*>(from)[i]) : static_cast<const float*>(from)[i];
}

#ifndef FETTLE_PAIRS
void pack_f32(const void* from, DType dtype, int64_t stride, int64_t rows, int64_t width, int64_t padded_rows,
              int64_t row_words, Word* to) {
  for (int64_t r = 0; r < padded_rows; ++r, to += row_words) {
    const int64_t filled = r < rows ? width : 0;
    if (dtype == DType::kBF16) {
      const uint16_t* row = static_cast<const uint16_t*>(from) + r * stride;
      for (int64_t i = 0; i < filled; ++i) to[i].pair = static_cast<uint32_t>(row[i]) << 16;
    } else {
      const float* row = static_cast<const float*>(from) + r * stride;
      for (int64_t i = 0; i < filled; ++i) to[i].f32 = row[i];
    }
    for (int64_t i = filled; i < row_words; ++i) to[i].pair = 0;
  }
}

#else
void pack_across(const void* from, DType, int64_t stride, int64_t rows, int64_t width, int64_t padded_rows,
                 int64_t row_words, Word* to) {
  for (int64_t r = 0; r < padded_rows; ++r, to += row_words) {
    const uint16_t* row = static_cast<const uint16_t*>(from) + r * stride;
    const int64_t filled = r < rows ? width : 0;
    uint16_t* out = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = 0; i < filled; ++i) out[i] = row[i];
    for (int64_t i = filled; i < 2 * row_words; ++i) out[i] = 0;
  }
}

void pack_down(const void* from, DType, int64_t stride, int64_t rows, int64_t width, int64_t padded_rows,
               int64_t row_words, Word* to) {
  for (int64_t r = 0; r < padded_rows; r += 2, to += row_words) {
    const uint16_t* low = static_cast<const uint16_t*>(from) + r * stride;
    const uint16_t* high = low + stride;
    const int64_t filled = r < rows ? width : 0;
    if (r + 1 < rows)
      for (int64_t i = 0; i < filled; ++i) to[i].pair = low[i] | (static_cast<uint32_t>(high[i]) << 16);
    else
      for (int64_t i = 0; i < filled; ++i) to[i].pair = low[i];
    for (int64_t i = filled; i < row_words; ++i) to[i].pair = 0;
  }
}
#endif

// Transposes kLanes rows of kLanes words. In stage s, rows i and i + s exchange words: in each group of 2 s words, the
// upper half of row i changes places with the lower half of row i + s.
inline void turn(Ints (&rows)[kLanes]) {
#pragma GCC unroll 8
  for (int s = 1; s < kLanes; s *= 2) {
    Ints low{}, high{};
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) {
      low[j] = (j & s) != 0 ? kLanes + j - s : j;
      high[j] = (j & s) != 0 ? kLanes + j : j + s;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & s) != 0) continue;
      const Ints first = rows[i], second = rows[i + s];
      rows[i] = __builtin_shuffle(first, second, low);
      rows[i + s] = __builtin_shuffle(first, second, high);
    }
  }
}

// Returns the word with element i of a row and, with pairs, element i + 1.
inline uint32_t word_at(const void* row, DType dtype, int64_t i, int64_t width) {
#ifdef FETTLE_PAIRS
  (void)dtype;
  const uint16_t* elements = static_cast<const uint16_t*>(row);
  return elements[i] | (i + 1 < width ? static_cast<uint32_t>(elements[i + 1]) << 16 : 0);
#else
  (void)width;
  Word word;
  word.f32 = element(row, dtype, i);
  return word.pair;
#endif
}

// Returns kLanes words, starting at element i of a row.
inline Ints words_at(const void* row, DType dtype, int64_t i) {
#ifdef FETTLE_PAIRS
  (void)dtype;
  return load_ints(static_cast<const uint16_t*>(row) + i);
#else
  if (dtype == DType::kF32) return load_ints(static_cast<const float*>(row) + i);
  typedef uint16_t Halves __attribute__((vector_size(kLanes * 2), aligned(2), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Halves*>(static_cast<const uint16_t*>(row) + i), Ints) << 16;
#endif
}

void pack_turned(const void* from, DType dtype, int64_t stride, int64_t rows, int64_t width, int64_t row_words,
                 Word* to) {
#ifdef FETTLE_PAIRS
  constexpr int64_t kPerWord = 2;
#else
  constexpr int64_t kPerWord = 1;
#endif
  const int64_t bytes = dtype == DType::kBF16 ? 2 : 4, words = (width + kPerWord - 1) / kPerWord;
  auto row_at = [&](int64_t r) { return static_cast<const char*>(from) + r * stride * bytes; };
  for (int64_t r = 0; r < row_words; r += kLanes) {
    int64_t w = 0;
    if (r + kLanes <= rows)
      for (; (w + kLanes) * kPerWord <= width; w += kLanes) {
        Ints block[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) block[i] = words_at(row_at(r + i), dtype, w * kPerWord);
        turn(block);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(to + (w + i) * row_words + r, block[i]);
      }
    for (; w < words; ++w)
      for (int64_t i = r; i < r + kLanes; ++i)
        to[w * row_words + i].pair = i < rows ? word_at(row_at(i), dtype, w * kPerWord, width) : 0;
  }
}

void transpose(const Word* from, int64_t rows, int64_t columns, Word* to) {
  for (int64_t r = 0; r < rows; r += 16) {
    const int64_t end = r + 16 < rows ? r + 16 : rows;
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = r; i < end; ++i) to[c * rows + i] = from[i * columns + c];
  }
}

// Computes scores from the products of query and key: scales and caps them, and subtracts ALiBi's slope * distance.
// Masking comes later.
template <bool kPlain>
inline Floats adjusted(const ScoreBlock& s, Floats x, int64_t row, Ints column) {
  x = x * s.scale;
  if constexpr (!kPlain) {
    if (s.softcap != 0) x = s.softcap * hyperbolic_tangent(x / s.softcap);
    if (s.slope != 0) {
      const Ints distance = static_cast<int32_t>(s.first_query + row - s.first_key) - column;
      x = x - s.slope * __builtin_convertvector(distance, Floats);
    }
  }
  return x;
}

inline Ints visible(const ScoreBlock& s, int64_t row, int64_t column, Ints columns) {
  Ints seen = (columns >= s.low[row]) & (columns < s.high[row]);
  if (s.segments) seen &= load_ints(s.key_segments + column) == s.query_segments[row];
  return seen;
}

template <bool kPlain, bool kMasked>
bool softmax_of(const ScoreBlock& s, const SoftmaxRows& state, bool round) {
  const Ints first = first_indices();
  bool corrected = false;
  for (int64_t r = 0; r < s.rows; ++r) {
    float* row = s.scores + r * s.row_words;
    Floats most = spread(state.top[r]);
    for (int64_t c = 0; c < s.columns; c += kLanes) {
      const Ints columns = first + static_cast<int32_t>(c);
      Floats x = adjusted<kPlain>(s, load(row + c), r, columns);
      if constexpr (kMasked) x = visible(s, r, c, columns) ? x : spread(kHidden);
      most = x > most ? x : most;
      store(row + c, x);
    }
    const float top = largest(most);
    const float factor = top == state.top[r] ? 1.0F : exponential(spread(state.top[r] - top))[0];
    corrected |= factor != 1.0F;
    state.correction[r] = factor;
    state.top[r] = top;
    Floats sum = load(state.sum + r * kSumLanes) * factor;
#ifdef FETTLE_PAIRS
    (void)round;
    for (int64_t c = 0; c < s.columns; c += 2 * kLanes) {
      const Floats low = exponential(load(row + c) - top);
      if (c + kLanes < s.columns) {
        const Floats high = exponential(load(row + c + kLanes) - top);
        sum = sum + low + high;
        store(row + c / 2, (Ints)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
      } else {
        sum = sum + low;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + c / 2), (__m256i)_mm512_cvtneps_pbh((__m512)low));
      }
    }
#else
    for (int64_t c = 0; c < s.columns; c += kLanes) {
      const Floats weight = exponential(load(row + c) - top);
      sum = sum + weight;
      store(row + c, round ? rounded(weight) : weight);
    }
#endif
    store(state.sum + r * kSumLanes, sum);
  }
  return corrected;
}

bool softmax(const ScoreBlock& block, const SoftmaxRows& rows, bool round) {
  const bool plain = block.softcap == 0 && block.slope == 0;
  if (block.masked) return (plain ? softmax_of<true, true> : softmax_of<false, true>)(block, rows, round);
  return (plain ? softmax_of<true, false> : softmax_of<false, false>)(block, rows, round);
}

struct Gradient {
  Floats weight, score;
};

template <bool kPlain, bool kMasked>
inline Gradient gradient(const ScoreBlock& s, int64_t r, int64_t c, Ints columns, float log_sum, float out_dot,
                         const float* weights) {
  const Floats x = adjusted<kPlain>(s, load(s.scores + r * s.row_words + c), r, columns);
  Floats weight = exponential(x - log_sum);
  if constexpr (kMasked) weight = visible(s, r, c, columns) ? weight : Floats{};
  Floats change = weight * (load(weights + r * s.row_words + c) - out_dot) * s.scale;
  if constexpr (!kPlain) {
    if (s.softcap != 0) {
      const Floats capped = hyperbolic_tangent(load(s.scores + r * s.row_words + c) * s.scale / s.softcap);
      change = change * (1.0F - capped * capped);
    }
  }
  return {weight, change};
}

template <bool kPlain, bool kMasked>
void gradient_of(const ScoreBlock& s, const float* log_sum, const float* out_dot, float* weights, Word* across,
                 bool round) {
  const Ints first = first_indices();
#ifdef FETTLE_PAIRS
  (void)round;
  const int64_t across_row = s.columns / 2;
  for (int64_t r = 0; r < s.rows; r += 2)
    for (int64_t c = 0; c < s.columns; c += kLanes) {
      const Ints columns = first + static_cast<int32_t>(c);
      const Gradient low = gradient<kPlain, kMasked>(s, r, c, columns, log_sum[r], out_dot[r], weights);
      const Gradient high = gradient<kPlain, kMasked>(s, r + 1, c, columns, log_sum[r + 1], out_dot[r + 1], weights);
      store(weights + r * s.row_words + c, paired(low.weight, high.weight));
      store(s.scores + r * s.row_words + c, paired(low.score, high.score));
      Word* to = across + r * across_row + c / 2;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)low.score));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + across_row), (__m256i)_mm512_cvtneps_pbh((__m512)high.score));
    }
#else
  (void)across;
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.columns; c += kLanes) {
      const Ints columns = first + static_cast<int32_t>(c);
      const Gradient g = gradient<kPlain, kMasked>(s, r, c, columns, log_sum[r], out_dot[r], weights);
      store(weights + r * s.row_words + c, round ? rounded(g.weight) : g.weight);
      store(s.scores + r * s.row_words + c, round ? rounded(g.score) : g.score);
    }
#endif
}

void softmax_gradient(const ScoreBlock& block, const float* log_sum, const float* out_dot, float* weights, Word* across,
                      bool round) {
  const bool plain = block.softcap == 0 && block.slope == 0;
  const auto run = block.masked ? (plain ? gradient_of<true, true> : gradient_of<false, true>)
                                : (plain ? gradient_of<true, false> : gradient_of<false, false>);
  run(block, log_sum, out_dot, weights, across, round);
}

void scale_rows(float* values, int64_t rows, int64_t width, int64_t row, const float* factor) {
  for (int64_t r = 0; r < rows; ++r, values += row) {
    if (factor[r] == 1.0F) continue;
    for (int64_t i = 0; i < width; ++i) values[i] *= factor[r];
  }
}

// Reads and writes the elements i ... i + kLanes - 1 of an array.
struct Whole {
  template <DType kType>
  Floats read(const void* from, int64_t i) const {
    if constexpr (kType == DType::kF32) return load(static_cast<const float*>(from) + i);
    const Halves halves = *reinterpret_cast<const LooseHalves*>(static_cast<const uint16_t*>(from) + i);
    return floats_of(__builtin_convertvector(halves, Ints) << 16);
  }
  template <DType kType>
  void write(void* to, int64_t i, Floats x) const {
    if constexpr (kType == DType::kF32) return store(static_cast<float*>(to) + i, x);
    store_rounded(static_cast<uint16_t*>(to) + i, x);
  }
};

// Reads and writes the `count` elements from i on. The other lanes are read as zeros and not written.
struct Rest {
  int64_t count;
  template <DType kType>
  Floats read(const void* from, int64_t i) const {
    Floats x{};
    for (int64_t j = 0; j < count; ++j) x[j] = element(from, kType, i + j);
    return x;
  }
  template <DType kType>
  void write(void* to, int64_t i, Floats x) const {
    for (int64_t j = 0; j < count; ++j)
      if constexpr (kType == DType::kF32)
        static_cast<float*>(to)[i + j] = x[j];
      else
        static_cast<uint16_t*>(to)[i + j] = static_cast<uint16_t>(rounded_bits(x[j]) >> 16);
  }
};

// Calls body(part, i) for each vector of `count` elements, with a Whole or, for the last elements, a Rest.
template <typename Body>
inline void each_vector(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(Whole{}, i);
  if (i < count) body(Rest{count - i}, i);
}

template <DType kType>
void store_rows_of(const float* from, int64_t from_row, const float* factor, int64_t rows, int64_t width,
                   int64_t stride, void* to) {
  for (int64_t r = 0; r < rows; ++r, from += from_row) {
    const float scale = factor == nullptr ? 1.0F : factor[r];
    each_vector(width, [&](const auto& part, int64_t i) {
      part.template write<kType>(to, r * stride + i, part.template read<DType::kF32>(from, i) * scale);
    });
  }
}

void store_rows(const float* from, int64_t from_row, const float* factor, int64_t rows, int64_t width, DType dtype,
                int64_t stride, void* to) {
  const auto run = dtype == DType::kBF16 ? store_rows_of<DType::kBF16> : store_rows_of<DType::kF32>;
  run(from, from_row, factor, rows, width, stride, to);
}

void add(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <DType kType>
void row_dots_of(const void* x, const void* y, int64_t stride, int64_t rows, int64_t width, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    Floats sums{};
    each_vector(width, [&](const auto& part, int64_t i) {
      sums += part.template read<kType>(x, r * stride + i) * part.template read<kType>(y, r * stride + i);
    });
    out[r] = total(sums);
  }
}

void row_dots(const void* x, const void* y, DType dtype, int64_t stride, int64_t rows, int64_t width, float* out) {
  (dtype == DType::kBF16 ? row_dots_of<DType::kBF16> : row_dots_of<DType::kF32>)(x, y, stride, rows, width, out);
}

}  // namespace
}  // namespace fettle::cpu

#include "kernels/instruction_sets/few_rows_body.h"
#include "kernels/instruction_sets/row_ops_body.h"

namespace fettle::cpu {
namespace {

constexpr BlockOps make_table(const char* name) {
  return {.name = name,
#ifdef FETTLE_PAIRS
          .pairs = true,
          .pack_across = pack_across,
          .pack_down = pack_down,
#else
          .pairs = false,
          .pack_across = pack_f32,
          .pack_down = pack_f32,
#endif
          .pack_turned = pack_turned,
          .product = product,
          .last_product = last_product,
          .transpose = transpose,
          .softmax = softmax,
          .softmax_gradient = softmax_gradient,
          .scale_rows = scale_rows,
          .store_rows = store_rows,
          .add = add,
          .row_dots = row_dots,
          .row_products = row_products,
          .weighted_rows = weighted_rows,
          .attend_one = attend_one,
          .row_step = kPanelRows,
          .word_step = 1,
          .rows = kRowOps};
}

}  // namespace
}  // namespace fettle::cpu
