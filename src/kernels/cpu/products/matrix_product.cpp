#include "kernels/cpu/products/matrix_product.h"

#include <algorithm>
#include <array>
#include <memory>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/outer_sums.h"
#include "kernels/cpu/products/panels.h"
#include "kernels/cpu/products/tile_operands.h"
#include "kernels/cpu/products/word_operands.h"

namespace fettle::cpu {
namespace {

// Rows of a result that is so wide lie so far apart that the caches hold too few of them (benchmarks/linear_202611.md).
constexpr int64_t kWide = 1024;
// An operand `a` with many rows of so many words does not fit into the caches. So all panels are computed for a range
// of words, then all panels for the next range.
constexpr int64_t kDeep = 4096;
constexpr int64_t kDeepPass = 2 * WordOperands::kLongestSlice;
constexpr int64_t kSmall = 1'000'000;  // multiplications; a smaller product takes less time than waking a thread
// A product of few rows reads each weight from memory and uses it only few times, so fewer multiplications take as
// long.
constexpr int64_t kSmallOfFewRows = 200'000;
constexpr int64_t kFewRows = 16;     // a product with at most so many rows does not pack `b`, if `b` is turned
constexpr int64_t kFewColumns = 64;  // columns of a task of such a product
// A product with fewer rows, columns or terms takes less time than packing its operands as tiles.
constexpr int64_t kFewestForTiles = 64;

// Rounds the sums of a panel of c, times the product's scale, and stores them. Rows of sums lie sum_row floats apart.
void store_sums(const MatrixProduct& product, const BlockOps& ops, const Panel& panel, const float* sums,
                int64_t sum_row, void* c) {
  float scales[Panels::kRows];
  std::fill_n(scales, panel.rows, product.scale);
  ops.store_rows(sums, sum_row, product.scale == 1 ? nullptr : scales, panel.rows, panel.columns, product.result,
                 product.n, at(c, product.result, panel.row * product.n + panel.column));
}

// Returns true if the sums are added up in the result itself.
bool sums_in_result(const MatrixProduct& p) {
  return p.result == DType::kF32 && p.n < kWide && p.n % 16 == 0 && p.scale == 1;
}

// A product that tasks share.
template <typename Operands>
struct Product {
  MatrixProduct p;
  const BlockOps& ops;
  void* c;
  std::array<Operands, 2> operands;  // of the first and of the second product
  Panels panels;
  const TaskRow& tasks;
  TaskRow::Group seconds = TaskRow::kNone;  // the second operands are complete when these tasks have ended

  Product(const MatrixProduct& product, const BlockOps& block_ops, void* result, Word* free, const TaskRow& row)
      : p(product),
        ops(block_ops),
        c(result),
        operands{Operands(p, ops, false, free), Operands(p, ops, true, free)},
        panels(p.m, p.n, Operands::kPanel, operands[0].row_step(), p.threads),
        tasks(row) {}
};

// Computes a panel of c, or adds to it the products of `count` words along k from the word `first` on, and those of the
// second operands if `last` is true. The sums are in f32, in the result itself or in scratch memory.
void multiply_panel(const Product<WordOperands>& all, const Panel& panel, int64_t first, int64_t count, bool last) {
  const MatrixProduct& p = all.p;
  Word* const slice = thread_words(WordOperands::kSliceWords + Panels::kRows * WordOperands::kPanel);
  const bool in_result = sums_in_result(p);
  float* const sums =
      in_result ? static_cast<float*>(all.c) + panel.row * p.n + panel.column : &slice[WordOperands::kSliceWords].f32;
  const int64_t sum_row = in_result ? p.n : panel.width();
  // The last product of words rounds and stores the sums, if it can.
  const bool rounds = all.ops.last_product != nullptr && p.result == DType::kBF16 && p.scale == 1 && last &&
                      panel.columns == panel.width();
  uint16_t* const result = rounds ? static_cast<uint16_t*>(all.c) + panel.row * p.n + panel.column : nullptr;
  all.operands[0].multiply(panel, first, count, slice, sums, sum_row, first > 0, p.k2 > 0 ? nullptr : result);
  if (last && p.k2 > 0) {
    all.tasks.wait(all.seconds);
    all.operands[1].multiply(panel, 0, all.operands[1].words(), slice, sums, sum_row, true, result);
  }
  if (!in_result && !rounds) store_sums(p, all.ops, panel, sums, sum_row, all.c);
}

// Like the function above, for tiles. Adds to the panel if `add` is true.
void multiply_panel(const Product<TileOperands>& all, const Panel& panel, bool add, bool last) {
  constexpr int64_t kRow = TileOperands::kPanel + 16;  // so that the rows of a tile use different sets of the cache
  const MatrixProduct& p = all.p;
  Word* const slice = thread_words(TileOperands::kSliceWords + Panels::kRows * kRow);
  float* const sums = &slice[TileOperands::kSliceWords].f32;
  const TileResult in_scratch{.sums = sums, .sum_row = kRow, .accumulate = false};
  TileResult result = in_scratch;
  if (!add && last && p.result == DType::kBF16 && p.scale == 1 && panel.columns == panel.width()) {
    result.rounded = static_cast<uint16_t*>(all.c) + panel.row * p.n + panel.column;
    result.rounded_row = p.n;
    result.rows = panel.rows;
  }
  const TileOperands* const second = last && p.k2 > 0 ? &all.operands[1] : nullptr;
  if (second == nullptr) {
    all.operands[0].multiply(panel, slice, result);
  } else if (second->is_short()) {
    all.tasks.wait(all.seconds);
    all.operands[0].multiply(panel, slice, result, second);
  } else {
    all.operands[0].multiply(panel, slice, in_scratch);
    all.tasks.wait(all.seconds);
    result.accumulate = true;
    second->multiply(panel, slice, result);
  }
  if (result.rounded != nullptr) return;
  if (!add) return store_sums(p, all.ops, panel, sums, kRow, all.c);
  for (int64_t r = 0; r < panel.rows; ++r)
    all.ops.add(sums + r * kRow, panel.columns, static_cast<float*>(all.c) + (panel.row + r) * p.n + panel.column);
}

// Adds tasks that pack the left operand of the first or the second product, if it is packed.
template <typename Operands>
TaskRow::Group add_packing(const std::shared_ptr<Product<Operands>>& all, bool second, TaskRow& tasks,
                           TaskRow::Group after) {
  if (second && all->p.k2 == 0) return after;
  auto pack = [all, second](int64_t task) { all->operands[second].pack_a(task); };
  return tasks.add(all->operands[second].pack_tasks(), pack, after);
}

TaskRow::Group add_by_words(const MatrixProduct& p, const BlockOps& ops, void* c, void* workspace, TaskRow& tasks,
                            ProductAfter after) {
  auto all = std::make_shared<Product<WordOperands>>(p, ops, c, static_cast<Word*>(workspace), tasks);
  TaskRow::Group before = add_packing(all, false, tasks, after.operands);
  all->seconds = add_packing(all, true, tasks, after.seconds);
  const int64_t words = all->operands[0].words();
  const int64_t pass = words >= kDeep && sums_in_result(p) ? kDeepPass : words;
  for (int64_t first = 0; first < words; first += pass) {
    auto multiply = [all, first, count = std::min(pass, words - first), last = first + pass >= words](int64_t task) {
      multiply_panel(*all, all->panels.at(task), first, count, last);
    };
    before = tasks.add(all->panels.count(), multiply, before);
  }
  return before;
}

TaskRow::Group add_by_tiles(const MatrixProduct& p, const BlockOps& ops, void* c, void* workspace, TaskRow& tasks,
                            ProductAfter after) {
  const int64_t passes = TileOperands::passes(p, ops.tiles->pieces);
  TaskRow::Group before = after.operands;
  for (int64_t pass = 0; pass < passes; ++pass) {
    // All passes pack the left operand into the same memory.
    auto all = std::make_shared<Product<TileOperands>>(p, ops, c, static_cast<Word*>(workspace), tasks);
    if (passes > 1) all->operands[0].begin_pass(pass);
    before = add_packing(all, false, tasks, before);
    const bool last = pass == passes - 1;
    if (last) all->seconds = add_packing(all, true, tasks, after.seconds);
    auto multiply = [all, add = pass > 0, last](int64_t task) {
      multiply_panel(*all, all->panels.at(task), add, last);
    };
    before = tasks.add(all->panels.count(), multiply, before);
  }
  return before;
}

// Returns true if all operands are bf16.
bool is_narrow(const MatrixProduct& p) {
  const auto narrow = [](const ProductOperand& a, const ProductOperand& b) {
    return a.dtype == DType::kBF16 && b.dtype == DType::kBF16;
  };
  return narrow(p.a, p.b) && (p.k2 == 0 || narrow(p.a2, p.b2));
}

// Returns TileOps::pieces of the tables that may compute this product with tiles.
int64_t pieces_of(const MatrixProduct& p) {
  return is_narrow(p) ? 1 : 3;
}

bool may_use_tiles(const MatrixProduct& p) {
  return std::min({p.m, p.n, p.k}) >= kFewestForTiles;
}

bool has_few_rows(const MatrixProduct& p) {
  return p.m <= kFewRows && p.k2 == 0 && !p.a.turned && p.b.turned;
}

// Computes `columns` columns of c, starting at `column`, as dot products of rows of `a` and stored rows of `b`.
void multiply_few_rows(const MatrixProduct& p, const BlockOps& ops, int64_t column, int64_t columns, void* c) {
  float sums[kFewRows * kFewColumns];
  ops.row_products(p.a.data, p.a.dtype, p.m, at(p.b.data, p.b.dtype, column * p.k), p.b.dtype, columns, p.k, sums,
                   kFewColumns);
  store_sums(p, ops, {.row = 0, .rows = p.m, .column = column, .columns = columns}, sums, kFewColumns, c);
}

}  // namespace

int64_t product_workspace(const MatrixProduct& product) {
  // The memory is large enough for every BlockOps table, so that a program is the same on all CPUs.
  int64_t all = is_outer_sum(product) ? outer_sum_words(product)
                                      : WordOperands::a_words(product, false) + WordOperands::a_words(product, true);
  if (may_use_tiles(product)) {
    const int64_t pieces = pieces_of(product);
    all = std::max(all, TileOperands::a_words(product, pieces, false) + TileOperands::a_words(product, pieces, true));
  }
  return std::max<int64_t>(16, all) * static_cast<int64_t>(sizeof(Word));
}

TaskRow::Group add_product(const MatrixProduct& p, void* c, void* workspace, TaskRow& tasks, ProductAfter after) {
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(is_narrow(p) ? DType::kBF16 : DType::kF32);
  if (has_few_rows(p)) {
    auto multiply = [p, &ops, c](int64_t i) {
      multiply_few_rows(p, ops, i * kFewColumns, std::min(kFewColumns, p.n - i * kFewColumns), c);
    };
    return tasks.add(quotient_up(p.n, kFewColumns), multiply, after.operands);
  }
  if (is_outer_sum(p)) return add_outer_sum(p, ops, c, workspace, tasks, after.operands);
  const bool tiles = ops.tiles != nullptr && ops.tiles->pieces == pieces_of(p) && may_use_tiles(p);
  return (tiles ? add_by_tiles : add_by_words)(p, ops, c, workspace, tasks, after);
}

ParallelFor threads_that_pay(const MatrixProduct& p, const ParallelFor& parallel) {
  if (p.m * p.n * p.k >= (has_few_rows(p) ? kSmallOfFewRows : kSmall)) return parallel;
  return [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
}

void multiply(const MatrixProduct& product, void* c, void* workspace, const ParallelFor& parallel) {
  TaskRow tasks;
  add_product(product, c, workspace, tasks);
  tasks.run(threads_that_pay(product, parallel));
}

}  // namespace fettle::cpu
