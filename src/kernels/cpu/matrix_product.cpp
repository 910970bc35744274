#include "kernels/cpu/matrix_product.h"

#include <algorithm>

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

// The layout of the packed operands in the workspace.
struct Plan {
  const BlockOps* ops;
  int64_t words;    // words of the operands along k
  int64_t panels;   // number of panels of b
  bool a_as_it_is;  // a is not packed; the product reads the operand itself
  int64_t a_row;    // words from one row of a to the next, whether a is packed or not
  int64_t a_words;  // words of the packed a

  int64_t b_words() const { return panels * kPanel * words; }
};

Plan plan_of(const MatrixProduct& p) {
  const bool narrow = p.a.dtype == DType::kBF16 && p.b.dtype == DType::kBF16;
  Plan out{};
  out.ops = p.ops != nullptr ? p.ops : &block_ops(narrow ? DType::kBF16 : DType::kF32);
  const bool pairs = out.ops->pairs;
  out.words = pairs ? quotient_up(p.k, 2) : p.k;
  out.panels = quotient_up(p.n, kPanel);
  out.a_as_it_is = pairs ? !p.a.turned && p.k % 2 == 0 : p.a.dtype == DType::kF32;
  out.a_row = p.a.turned ? p.m : out.words;
  out.a_words = out.a_as_it_is ? 0 : quotient_up(p.m * out.words, 16) * 16;
  return out;
}

// Returns a panel's width in words: kPanel, or less for the last panel, in multiples of 16.
int64_t panel_width(const MatrixProduct& p, int64_t panel) {
  return std::min(kPanel, quotient_up(p.n - panel * kPanel, 16) * 16);
}

// Packs rows [first, first + count) (in words) of one panel of b.
void pack_panel(const MatrixProduct& p, const Plan& plan, int64_t panel, int64_t first, int64_t count, Word* to) {
  const int64_t width = panel_width(p, panel), column = panel * kPanel;
  const int64_t per_word = plan.ops->pairs ? 2 : 1, row = first * per_word;
  const int64_t rows = std::min(p.k - row, count * per_word), columns = std::min(kPanel, p.n - column);
  to += panel * kPanel * plan.words + first * width;
  if (p.b.turned)
    plan.ops->pack_turned(at(p.b.data, p.b.dtype, column * p.k + row), p.b.dtype, p.k, columns, rows, width, to);
  else
    plan.ops->pack_down(at(p.b.data, p.b.dtype, row * p.n + column), p.b.dtype, p.n, rows, columns, count * per_word,
                        width, to);
}

// Packs a part of a: its words [first, first + count) along k when a is transposed ("turned"), otherwise its rows
// [first, first + count).
void pack_a(const MatrixProduct& p, const Plan& plan, int64_t first, int64_t count, Word* to) {
  if (p.a.turned) {
    const int64_t per_word = plan.ops->pairs ? 2 : 1, row = first * per_word;
    plan.ops->pack_down(at(p.a.data, p.a.dtype, row * p.m), p.a.dtype, p.m, std::min(p.k - row, count * per_word), p.m,
                        count * per_word, p.m, to + first * p.m);
  } else {
    plan.ops->pack_across(at(p.a.data, p.a.dtype, first * p.k), p.a.dtype, p.k, count, p.k, count, plan.words,
                          to + first * plan.words);
  }
}

// Multiplies rows [row, row + rows) by the panels [first, end).
void multiply_tile(const MatrixProduct& p, const Plan& plan, const Word* a, const Word* b, int64_t row, int64_t rows,
                   int64_t first, int64_t end, void* c) {
  Word* const words = thread_words(kTileRows * kTilePanels * kPanel);
  float* const tile = &words->f32;
  constexpr int64_t kTileRow = kTilePanels * kPanel;
  for (int64_t from = 0; from < plan.words; from += kDepth) {
    const int64_t depth = std::min(kDepth, plan.words - from);
    const Word* left = p.a.turned ? a + from * plan.a_row + row : a + row * plan.a_row + from;
    for (int64_t panel = first; panel < end; ++panel) {
      const int64_t width = panel_width(p, panel);
      plan.ops->product(rows, width, depth, left, plan.a_row, p.a.turned,
                        b + panel * kPanel * plan.words + from * width, width, tile + (panel - first) * kPanel,
                        kTileRow, from > 0);
    }
  }
  const int64_t column = first * kPanel, columns = std::min(end * kPanel, p.n) - column;
  plan.ops->store_rows(tile, kTileRow, nullptr, rows, columns, p.result, p.n, at(c, p.result, row * p.n + column));
}

}  // namespace

int64_t product_workspace(const MatrixProduct& product) {
  // Computes an upper bound for every BlockOps table: it assumes one element per word.
  const int64_t b = quotient_up(product.n, kPanel) * kPanel * product.k;
  const int64_t a = product.a.dtype != DType::kF32 ? quotient_up(product.m * product.k, 16) * 16 : 0;
  return (a + b) * static_cast<int64_t>(sizeof(Word));
}

void multiply(const MatrixProduct& p, void* c, void* workspace, const ParallelFor& threads) {
  const bool small = p.m * p.n * p.k < kSmall;
  const ParallelFor in_turn = [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  const ParallelFor& parallel = small ? in_turn : threads;
  const Plan plan = plan_of(p);
  Word* const packed_b = static_cast<Word*>(workspace);
  Word* const packed_a = packed_b + plan.b_words();
  const int64_t slices = quotient_up(plan.words, kDepth);
  const int64_t a_length = p.a.turned ? plan.words : p.m;
  const int64_t a_tasks = plan.a_as_it_is ? 0 : quotient_up(a_length, 64);
  parallel(plan.panels * slices + a_tasks, [&](int64_t task) {
    if (task >= plan.panels * slices) {
      const int64_t first = (task - plan.panels * slices) * 64;
      pack_a(p, plan, first, std::min<int64_t>(64, a_length - first), packed_a);
      return;
    }
    const int64_t first = task % slices * kDepth;
    pack_panel(p, plan, task / slices, first, std::min(kDepth, plan.words - first), packed_b);
  });
  const Word* const a = plan.a_as_it_is ? static_cast<const Word*>(p.a.data) : packed_a;
  const int64_t step = plan.ops->row_step, bands = quotient_up(p.m, kTileRows / step * step);
  const int64_t band = quotient_up(quotient_up(p.m, bands), step) * step;
  const int64_t columns = quotient_up(plan.panels, kTilePanels);
  parallel(bands * columns, [&](int64_t task) {
    const int64_t row = task % bands * band, first = task / bands * kTilePanels;
    if (row >= p.m) return;
    multiply_tile(p, plan, a, packed_b, row, std::min(band, p.m - row), first,
                  std::min(first + kTilePanels, plan.panels), c);
  });
}

}  // namespace fettle::cpu
