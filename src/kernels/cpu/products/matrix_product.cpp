#include "kernels/cpu/products/matrix_product.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

// The number of columns of a panel, a multiple of the columns that BlockOps::product computes at once.
constexpr int64_t kPanel = 64;
constexpr int64_t kDepth =
    128;                        // length of a slice along k, in words; a packed slice of a panel fits into the L1 cache
constexpr int64_t kRows = 576;  // largest number of rows of a task; the sums of these rows fit into the L2 cache
// Rows of a result that is so wide lie so far apart that the caches hold too few of them (benchmarks/linear_202611.md).
constexpr int64_t kWide = 2048;
constexpr int64_t kSmall = 1'000'000;  // multiplications; a smaller product takes less time than waking a thread
// A product of few rows reads each weight from memory and uses it only few times, so fewer multiplications take as
// long.
constexpr int64_t kSmallOfFewRows = 200'000;
constexpr int64_t kFewRows = 16;  // a product with at most so many rows does not pack `b`, if `b` is turned

int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// One of the two products of a MatrixProduct, and the layout of its operands.
struct Part {
  ProductOperand a, b;
  int64_t m, n, k;
  const BlockOps* ops;
  int64_t words;    // words of the operands along k, padded to a multiple of BlockOps::word_step
  bool a_as_it_is;  // `a` is not packed; the product reads the operand itself
  int64_t a_row;    // words from one row of `a` to the next, whether `a` is packed or not
  int64_t a_words;  // words of the packed `a`
  Word* packed_a;

  int64_t a_length() const { return a.turned ? words : m; }
  int64_t a_tasks() const { return a_as_it_is ? 0 : quotient_up(a_length(), 64); }
  const Word* left() const { return a_as_it_is ? static_cast<const Word*>(a.data) : packed_a; }
};

// Returns the first product, or the second one if `second` is true. Reserves memory for the packed `a` at `workspace`,
// and moves `workspace` to the end of this memory.
Part part_of(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace) {
  Part out{
      .a = second ? p.a2 : p.a, .b = second ? p.b2 : p.b, .m = p.m, .n = p.n, .k = second ? p.k2 : p.k, .ops = &ops};
  const int64_t per_word = ops.pairs ? 2 : 1;
  out.words = quotient_up(quotient_up(out.k, per_word), ops.word_step) * ops.word_step;
  out.a_as_it_is = ops.pairs ? !out.a.turned && out.k == 2 * out.words : out.a.dtype == DType::kF32;
  out.a_row = out.a.turned ? p.m : out.words;
  out.a_words = out.a_as_it_is ? 0 : quotient_up(p.m * out.words, 16) * 16;
  out.packed_a = workspace;
  workspace += out.a_words;
  return out;
}

// Packs a slice of the panel of b that starts at `column`: the words [first, first + count) along k, in rows of `width`
// words.
void pack_b(const Part& p, int64_t column, int64_t width, int64_t first, int64_t count, Word* to) {
  const int64_t per_word = p.ops->pairs ? 2 : 1, row = first * per_word;
  const int64_t rows = std::min(p.k - row, count * per_word), columns = std::min(kPanel, p.n - column);
  if (p.b.turned) {
    p.ops->pack_turned(at(p.b.data, p.b.dtype, column * p.k + row), p.b.dtype, p.k, columns, rows, width, to);
    const int64_t filled = quotient_up(rows, per_word);
    std::fill_n(to + filled * width, (count - filled) * width, Word{0});
  } else {
    p.ops->pack_down(at(p.b.data, p.b.dtype, row * p.n + column), p.b.dtype, p.n, rows, columns, count * per_word,
                     width, to);
  }
}

// Packs a task's part of `a`: 64 rows, or 64 words along k if `a` is transposed ("turned").
void pack_a(const Part& p, int64_t task) {
  const int64_t first = task * 64, count = std::min<int64_t>(64, p.a_length() - first);
  if (p.a.turned) {
    const int64_t per_word = p.ops->pairs ? 2 : 1, row = first * per_word;
    p.ops->pack_down(at(p.a.data, p.a.dtype, row * p.m), p.a.dtype, p.m, std::min(p.k - row, count * per_word), p.m,
                     count * per_word, p.m, p.packed_a + first * p.m);
  } else {
    p.ops->pack_across(at(p.a.data, p.a.dtype, first * p.k), p.a.dtype, p.k, count, p.k, count, p.words,
                       p.packed_a + first * p.words);
  }
}

// Multiplies rows [row, row + rows) by the panel that starts at `column`. The panel is packed slice by slice, and each
// slice is used at once, so that packed values stay in the caches of this thread's core. The sums are in f32. They are
// added up in the result itself if it is f32 and not wide, has no scale, and the panel's columns fill whole vectors;
// else in scratch memory.
void multiply_panel(const MatrixProduct& product, std::span<const Part> parts, int64_t row, int64_t rows,
                    int64_t column, void* c) {
  const int64_t columns = std::min(kPanel, product.n - column), width = quotient_up(columns, 16) * 16;
  Word* const slice = thread_words(kDepth * kPanel + kRows * kPanel);
  void* const result = at(c, product.result, row * product.n + column);
  const bool in_result = product.result == DType::kF32 && product.n < kWide && product.scale == 1 && columns == width;
  float* const sums = in_result ? static_cast<float*>(result) : &slice[kDepth * kPanel].f32;
  const int64_t sum_row = in_result ? product.n : width;
  for (const Part& p : parts)
    for (int64_t from = 0; from < p.words; from += kDepth) {
      const int64_t depth = std::min(kDepth, p.words - from);
      pack_b(p, column, width, from, depth, slice);
      const Word* left = p.a.turned ? p.left() + from * p.a_row + row : p.left() + row * p.a_row + from;
      p.ops->product(rows, width, depth, left, p.a_row, p.a.turned, slice, width, sums, sum_row,
                     from > 0 || &p != parts.data());
    }
  if (in_result) return;
  float scales[kRows];
  std::fill_n(scales, rows, product.scale);
  parts[0].ops->store_rows(sums, width, product.scale == 1 ? nullptr : scales, rows, columns, product.result, product.n,
                           result);
}

// Divides a product into tasks. A task computes one panel of the result. If the result has many rows, a task computes a
// range of the panel's rows instead. If the number of panels is not a multiple of the number of threads, the last
// panels (panels % threads) are divided into smaller ranges of rows, so that all threads have work. Each task packs its
// panel of `b` itself.
struct Division {
  int64_t panels, whole, row_step, parts_of_whole, last_step, parts_of_last;

  Division(const MatrixProduct& p, int64_t step) : panels(quotient_up(p.n, kPanel)) {
    auto even = [&](int64_t parts) { return std::min(kRows, quotient_up(quotient_up(p.m, parts), step) * step); };
    row_step = even(quotient_up(p.m, kRows / step * step));
    parts_of_whole = quotient_up(p.m, row_step);
    const int64_t threads = std::max<int64_t>(1, p.threads), last = panels % threads;
    whole = panels - last;
    last_step = std::min(row_step, even(last == 0 ? 1 : quotient_up(threads, last)));
    parts_of_last = quotient_up(p.m, last_step);
  }
  int64_t count() const { return whole * parts_of_whole + (panels - whole) * parts_of_last; }

  struct Task {
    int64_t column, row, rows;
  };
  Task at(int64_t i, int64_t m) const {
    const bool last = i >= whole * parts_of_whole;
    if (last) i -= whole * parts_of_whole;
    const int64_t parts = last ? parts_of_last : parts_of_whole, step = last ? last_step : row_step;
    const int64_t row = i % parts * step;
    return {((last ? whole : 0) + i / parts) * kPanel, row, std::min(step, m - row)};
  }
};

bool has_few_rows(const MatrixProduct& p) {
  return p.m <= kFewRows && p.k2 == 0 && !p.a.turned && p.b.turned;
}

// Computes `columns` columns of c, starting at `column`, as dot products of rows of `a` and stored rows of `b`.
void multiply_few_rows(const MatrixProduct& p, const BlockOps& ops, int64_t column, int64_t columns, void* c) {
  float sums[kFewRows * kPanel];
  ops.row_products(p.a.data, p.a.dtype, p.m, at(p.b.data, p.b.dtype, column * p.k), p.b.dtype, columns, p.k, sums,
                   kPanel);
  float scales[kFewRows];
  std::fill_n(scales, p.m, p.scale);
  ops.store_rows(sums, kPanel, p.scale == 1 ? nullptr : scales, p.m, columns, p.result, p.n, at(c, p.result, column));
}

}  // namespace

int64_t product_workspace(const MatrixProduct& product) {
  // The memory must be large enough for every BlockOps table. So this function assumes one element per word and the
  // largest word_step of all tables.
  constexpr int64_t kWordStep = 16;
  const auto words = [&](const ProductOperand& a, int64_t k) {
    return a.dtype != DType::kF32 ? quotient_up(product.m * std::max(k, kWordStep), 16) * 16 : 0;
  };
  const int64_t all = words(product.a, product.k) + words(product.a2, product.k2);
  return std::max<int64_t>(16, all) * static_cast<int64_t>(sizeof(Word));
}

void multiply(const MatrixProduct& p, void* c, void* workspace, const ParallelFor& threads) {
  const bool small = p.m * p.n * p.k < (has_few_rows(p) ? kSmallOfFewRows : kSmall);
  const ParallelFor in_turn = [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  const ParallelFor& parallel = small ? in_turn : threads;
  const auto is_narrow = [](const ProductOperand& a, const ProductOperand& b) {
    return a.dtype == DType::kBF16 && b.dtype == DType::kBF16;
  };
  const bool narrow = is_narrow(p.a, p.b) && (p.k2 == 0 || is_narrow(p.a2, p.b2));
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(narrow ? DType::kBF16 : DType::kF32);
  if (has_few_rows(p))
    return parallel(quotient_up(p.n, kPanel),
                    [&](int64_t i) { multiply_few_rows(p, ops, i * kPanel, std::min(kPanel, p.n - i * kPanel), c); });
  auto* free = static_cast<Word*>(workspace);
  const std::array all{part_of(p, ops, false, free), part_of(p, ops, true, free)};
  const std::span<const Part> parts(all.data(), p.k2 > 0 ? 2 : 1);
  const int64_t first = all[0].a_tasks(), packs = first + (p.k2 > 0 ? all[1].a_tasks() : 0);
  if (packs > 0)
    parallel(packs, [&](int64_t task) { task < first ? pack_a(all[0], task) : pack_a(all[1], task - first); });
  const Division tasks(p, ops.row_step);
  parallel(tasks.count(), [&](int64_t i) {
    const Division::Task task = tasks.at(i, p.m);
    multiply_panel(p, parts, task.row, task.rows, task.column, c);
  });
}

}  // namespace fettle::cpu
