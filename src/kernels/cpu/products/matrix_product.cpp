#include "kernels/cpu/products/matrix_product.h"

#include <algorithm>
#include <array>
#include <span>

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
constexpr int64_t kDeepPass = 6 * WordOperands::kDepth;
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

// Computes a panel of c, or adds to it the products of `count` words along k from the word `first` on. The sums are in
// f32, in the result itself or in scratch memory.
void multiply_panel(const MatrixProduct& product, std::span<const WordOperands> operands, const BlockOps& ops,
                    const Panel& panel, int64_t first, int64_t count, void* c) {
  const int64_t width = panel.width();
  Word* const slice = thread_words(WordOperands::kSliceWords + Panels::kRows * WordOperands::kPanel);
  const bool in_result = sums_in_result(product);
  float* const sums =
      in_result ? static_cast<float*>(c) + panel.row * product.n + panel.column : &slice[WordOperands::kSliceWords].f32;
  const int64_t sum_row = in_result ? product.n : width;
  operands[0].multiply(panel, first, count, slice, sums, sum_row, first > 0);
  if (operands.size() > 1) operands[1].multiply(panel, 0, operands[1].words(), slice, sums, sum_row, true);
  if (!in_result) store_sums(product, ops, panel, sums, sum_row, c);
}

// Like the function above, for tiles. Adds to the panel if `add` is true.
void multiply_panel(const MatrixProduct& product, std::span<const TileOperands> operands, const BlockOps& ops,
                    const Panel& panel, bool add, void* c) {
  constexpr int64_t kRow = TileOperands::kPanel + 16;  // so that the rows of a tile use different sets of the cache
  Word* const slice = thread_words(TileOperands::kSliceWords + Panels::kRows * kRow);
  float* const sums = &slice[TileOperands::kSliceWords].f32;
  for (const TileOperands& each : operands) each.multiply(panel, slice, sums, kRow, &each != operands.data());
  if (!add) return store_sums(product, ops, panel, sums, kRow, c);
  for (int64_t r = 0; r < panel.rows; ++r)
    ops.add(sums + r * kRow, panel.columns, static_cast<float*>(c) + (panel.row + r) * product.n + panel.column);
}

// Packs `a` of all operands.
template <typename Operands>
void pack_all(std::span<const Operands> operands, const ParallelFor& parallel) {
  int64_t count = 0;
  for (const Operands& each : operands) count += each.pack_tasks();
  if (count == 0) return;
  const int64_t first = operands[0].pack_tasks();
  parallel(count, [&](int64_t task) { task < first ? operands[0].pack_a(task) : operands[1].pack_a(task - first); });
}

void multiply_by_words(const MatrixProduct& p, const BlockOps& ops, void* c, void* workspace,
                       const ParallelFor& parallel) {
  auto* free = static_cast<Word*>(workspace);
  const std::array all{WordOperands(p, ops, false, free), WordOperands(p, ops, true, free)};
  const std::span<const WordOperands> operands(all.data(), p.k2 > 0 ? 2 : 1);
  pack_all(operands, parallel);
  const Panels panels(p.m, p.n, WordOperands::kPanel, all[0].row_step(), p.threads);
  const int64_t words = all[0].words();
  const int64_t pass = words >= kDeep && sums_in_result(p) ? kDeepPass : words;
  for (int64_t first = 0; first < words; first += pass) {
    const int64_t count = std::min(pass, words - first);
    // The last pass also computes the second product.
    const auto used = first + count < words ? operands.first(1) : operands;
    parallel(panels.count(), [&](int64_t i) { multiply_panel(p, used, ops, panels.at(i), first, count, c); });
  }
}

void multiply_by_tiles(const MatrixProduct& p, const BlockOps& ops, void* c, void* workspace,
                       const ParallelFor& parallel) {
  auto* free = static_cast<Word*>(workspace);
  std::array all{TileOperands(p, ops, false, free), TileOperands(p, ops, true, free)};
  const Panels panels(p.m, p.n, TileOperands::kPanel, all[0].row_step(), p.threads);
  const int64_t passes = TileOperands::passes(p, ops.tiles->pieces);
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (passes > 1) all[0].begin_pass(pass);
    // The last pass also computes the second product.
    const std::span<const TileOperands> operands(all.data(), pass == passes - 1 && p.k2 > 0 ? 2 : 1);
    pack_all(operands, parallel);
    parallel(panels.count(), [&](int64_t i) { multiply_panel(p, operands, ops, panels.at(i), pass > 0, c); });
  }
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

void multiply(const MatrixProduct& p, void* c, void* workspace, const ParallelFor& threads) {
  const bool small = p.m * p.n * p.k < (has_few_rows(p) ? kSmallOfFewRows : kSmall);
  const ParallelFor in_turn = [](int64_t count, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < count; ++i) task(i);
  };
  const ParallelFor& parallel = small ? in_turn : threads;
  const BlockOps& ops = p.ops != nullptr ? *p.ops : block_ops(is_narrow(p) ? DType::kBF16 : DType::kF32);
  if (has_few_rows(p))
    return parallel(quotient_up(p.n, kFewColumns), [&](int64_t i) {
      multiply_few_rows(p, ops, i * kFewColumns, std::min(kFewColumns, p.n - i * kFewColumns), c);
    });
  if (is_outer_sum(p)) return multiply_outer_sum(p, ops, c, workspace, parallel);
  const bool tiles = ops.tiles != nullptr && ops.tiles->pieces == pieces_of(p) && may_use_tiles(p);
  (tiles ? multiply_by_tiles : multiply_by_words)(p, ops, c, workspace, parallel);
}

}  // namespace fettle::cpu
