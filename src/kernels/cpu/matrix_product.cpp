#include "kernels/cpu/matrix_product.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/block_ops.h"

namespace fettle::cpu {
namespace {

// The columns of a panel: a multiple of the columns that BlockOps::product computes at once
constexpr int64_t kPanel = 64;
constexpr int64_t kDepth = 128;     // words along k that are multiplied at once
constexpr int64_t kTileRows = 128;  // largest number of rows in a tile
constexpr int64_t kTilePanels = 2;
constexpr int64_t kSmall = 1'000'000;  // multiplications; a smaller product takes less time than waking a thread

int64_t quotient_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// One of the two products of a MatrixProduct, and the layout of its packed operands.
struct Part {
  ProductOperand a, b;
  int64_t m, n, k;
  const BlockOps* ops;
  int64_t words;    // words of the operands along k
  int64_t panels;   // number of panels of b
  bool a_as_it_is;  // a is not packed; the product reads the operand itself
  int64_t a_row;    // words from one row of a to the next, whether a is packed or not
  int64_t a_words;  // words of the packed a
  Word *packed_b, *packed_a;

  int64_t b_words() const { return panels * kPanel * words; }
  int64_t slices() const { return quotient_up(words, kDepth); }
  int64_t a_length() const { return a.turned ? words : m; }
  int64_t a_tasks() const { return a_as_it_is ? 0 : quotient_up(a_length(), 64); }
  const Word* left() const { return a_as_it_is ? static_cast<const Word*>(a.data) : packed_a; }
};

// Puts the packed operands at `workspace` and moves it behind them.
Part part_of(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace) {
  Part out{
      .a = second ? p.a2 : p.a, .b = second ? p.b2 : p.b, .m = p.m, .n = p.n, .k = second ? p.k2 : p.k, .ops = &ops};
  out.words = ops.pairs ? quotient_up(out.k, 2) : out.k;
  out.panels = quotient_up(p.n, kPanel);
  out.a_as_it_is = ops.pairs ? !out.a.turned && out.k % 2 == 0 : out.a.dtype == DType::kF32;
  out.a_row = out.a.turned ? p.m : out.words;
  out.a_words = out.a_as_it_is ? 0 : quotient_up(p.m * out.words, 16) * 16;
  out.packed_b = workspace;
  out.packed_a = workspace + out.b_words();
  workspace = out.packed_a + out.a_words;
  return out;
}

// Returns a panel's width in words: kPanel, or less for the last panel, in multiples of 16.
int64_t panel_width(int64_t n, int64_t panel) {
  return std::min(kPanel, quotient_up(n - panel * kPanel, 16) * 16);
}

// Packs rows [first, first + count) (in words) of one panel of b.
void pack_panel(const Part& p, int64_t panel, int64_t first, int64_t count) {
  const int64_t width = panel_width(p.n, panel), column = panel * kPanel;
  const int64_t per_word = p.ops->pairs ? 2 : 1, row = first * per_word;
  const int64_t rows = std::min(p.k - row, count * per_word), columns = std::min(kPanel, p.n - column);
  Word* const to = p.packed_b + panel * kPanel * p.words + first * width;
  if (p.b.turned)
    p.ops->pack_turned(at(p.b.data, p.b.dtype, column * p.k + row), p.b.dtype, p.k, columns, rows, width, to);
  else
    p.ops->pack_down(at(p.b.data, p.b.dtype, row * p.n + column), p.b.dtype, p.n, rows, columns, count * per_word,
                     width, to);
}

// Packs a part of a: its words [first, first + count) along k when a is transposed ("turned"), otherwise its rows
// [first, first + count).
void pack_a(const Part& p, int64_t first, int64_t count) {
  if (p.a.turned) {
    const int64_t per_word = p.ops->pairs ? 2 : 1, row = first * per_word;
    p.ops->pack_down(at(p.a.data, p.a.dtype, row * p.m), p.a.dtype, p.m, std::min(p.k - row, count * per_word), p.m,
                     count * per_word, p.m, p.packed_a + first * p.m);
  } else {
    p.ops->pack_across(at(p.a.data, p.a.dtype, first * p.k), p.a.dtype, p.k, count, p.k, count, p.words,
                       p.packed_a + first * p.words);
  }
}

// Runs one of the tasks that pack the operands of a part.
void pack(const Part& p, int64_t task) {
  const int64_t of_b = p.panels * p.slices();
  if (task >= of_b) {
    const int64_t first = (task - of_b) * 64;
    return pack_a(p, first, std::min<int64_t>(64, p.a_length() - first));
  }
  const int64_t first = task % p.slices() * kDepth;
  pack_panel(p, task / p.slices(), first, std::min(kDepth, p.words - first));
}

// Multiplies rows [row, row + rows) by the panels [first, end).
void multiply_tile(const MatrixProduct& product, std::span<const Part> parts, int64_t row, int64_t rows, int64_t first,
                   int64_t end, void* c) {
  constexpr int64_t kTileRow = kTilePanels * kPanel;
  Word* const words = thread_words(kTileRows * kTileRow);
  float* const tile = &words->f32;
  for (const Part& p : parts)
    for (int64_t from = 0; from < p.words; from += kDepth) {
      const int64_t depth = std::min(kDepth, p.words - from);
      const Word* left = p.a.turned ? p.left() + from * p.a_row + row : p.left() + row * p.a_row + from;
      for (int64_t panel = first; panel < end; ++panel) {
        const int64_t width = panel_width(p.n, panel);
        p.ops->product(rows, width, depth, left, p.a_row, p.a.turned,
                       p.packed_b + panel * kPanel * p.words + from * width, width, tile + (panel - first) * kPanel,
                       kTileRow, from > 0 || &p != parts.data());
      }
    }
  float scales[kTileRows];
  std::fill_n(scales, rows, product.scale);
  const int64_t column = first * kPanel, columns = std::min(end * kPanel, product.n) - column;
  parts[0].ops->store_rows(tile, kTileRow, product.scale == 1 ? nullptr : scales, rows, columns, product.result,
                           product.n, at(c, product.result, row * product.n + column));
}

}  // namespace

int64_t product_workspace(const MatrixProduct& product) {
  // Computes an upper bound for every BlockOps table: it assumes one element per word.
  const auto words = [&](DType a, int64_t k) {
    const int64_t of_a = a != DType::kF32 ? quotient_up(product.m * k, 16) * 16 : 0;
    return of_a + quotient_up(product.n, kPanel) * kPanel * k;
  };
  return (words(product.a.dtype, product.k) + words(product.a2.dtype, product.k2)) * static_cast<int64_t>(sizeof(Word));
}

void multiply(const MatrixProduct& p, void* c, void* workspace, const ParallelFor& threads) {
  const bool small = p.m * p.n * p.k < kSmall;
  const ParallelFor in_turn = [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  const ParallelFor& parallel = small ? in_turn : threads;
  const auto is_narrow = [](const ProductOperand& a, const ProductOperand& b) {
    return a.dtype == DType::kBF16 && b.dtype == DType::kBF16;
  };
  const bool narrow = is_narrow(p.a, p.b) && (p.k2 == 0 || is_narrow(p.a2, p.b2));
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(narrow ? DType::kBF16 : DType::kF32);
  auto* free = static_cast<Word*>(workspace);
  const std::array all{part_of(p, ops, false, free), part_of(p, ops, true, free)};
  const std::span<const Part> parts(all.data(), p.k2 > 0 ? 2 : 1);
  const auto tasks = [](const Part& part) { return part.panels * part.slices() + part.a_tasks(); };
  const int64_t first_tasks = tasks(all[0]);
  parallel(first_tasks + (parts.size() > 1 ? tasks(all[1]) : 0),
           [&](int64_t task) { task < first_tasks ? pack(all[0], task) : pack(all[1], task - first_tasks); });
  const int64_t step = ops.row_step, bands = quotient_up(p.m, kTileRows / step * step);
  const int64_t band = quotient_up(quotient_up(p.m, bands), step) * step;
  const int64_t panels = all[0].panels, columns = quotient_up(panels, kTilePanels);
  parallel(bands * columns, [&](int64_t task) {
    const int64_t row = task % bands * band, first = task / bands * kTilePanels;
    if (row >= p.m) return;
    multiply_tile(p, parts, row, std::min(band, p.m - row), first, std::min(first + kTilePanels, panels), c);
  });
}

}  // namespace fettle::cpu
