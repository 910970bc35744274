#include "kernels/cpu/products/word_operands.h"

#include <unistd.h>

#include <algorithm>

#include "kernels/cpu/attention/attention_blocks.h"

namespace fettle::cpu {
namespace {

// A transposed operand `a` whose words are f32 is transposed back for a result that is so wide. Rows of `a` as it is
// lie so far apart that the L1 cache holds too few of them. A larger `a` stays as it is, so that the copy takes at most
// 256 MB.
constexpr int64_t kWideEnoughToTurn = 128;
constexpr int64_t kMostToTurn = 64'000'000;  // elements
constexpr int64_t kTurnedStep = 16;          // words of a row that is transposed back are a multiple of this
// An operand that stays transposed is packed in blocks of so many columns, because rows of a wide one lie so far apart
// that each is on a page of its own. A block has the rows of a task or more.
constexpr int64_t kTurnedBlock = Panels::kRows;
// The rows of a task are multiplied in so many parts. Before each part, a part of the next slice is fetched, so that
// packing the slice need not wait for memory.
constexpr int64_t kParts = 8;
constexpr int64_t kFewestRowsToFetch = 192;
constexpr int64_t kShortSlice = 128;         // words along k
constexpr int64_t kFitsShortSlice = 48'000;  // bytes of an L1 cache that holds a short slice, sums and rows of `a`

// Returns the length of a slice of `b` along k, in words. If the L1 cache is too small for a slice, the slice is read
// from the L2 cache. Then a longer slice is better, because the sums are loaded and stored less often. The length does
// not change the order of a sum.
int64_t slice_length() {
  static const int64_t length =
      sysconf(_SC_LEVEL1_DCACHE_SIZE) >= kFitsShortSlice ? kShortSlice : WordOperands::kLongestSlice;
  return length;
}

bool turns_back(const ProductOperand& a, int64_t m, int64_t n, int64_t k, bool pairs) {
  return a.turned && !pairs && n >= kWideEnoughToTurn && m * k <= kMostToTurn;
}

}  // namespace

WordOperands::WordOperands(const MatrixProduct& p, const BlockOps& ops, bool second, Word*& workspace)
    : a_(second ? p.a2 : p.a), b_(second ? p.b2 : p.b), m_(p.m), n_(p.n), k_(second ? p.k2 : p.k), ops_(&ops) {
  const int64_t per_word = ops.pairs ? 2 : 1;
  const bool turn = turns_back(a_, m_, n_, k_, ops.pairs);
  const int64_t step = turn ? kTurnedStep : ops.word_step;
  words_ = quotient_up(quotient_up(k_, per_word), step) * step;
  a_as_it_is_ = ops.pairs ? !a_.turned && k_ == 2 * words_ : a_.dtype == DType::kF32 && !turn;
  a_across_ = a_.turned && !turn;
  packed_a_ = workspace;
  workspace += a_as_it_is_ ? 0 : quotient_up(m_ * words_, 16) * 16;
}

int64_t WordOperands::a_words(const MatrixProduct& p, bool second) {
  const ProductOperand& a = second ? p.a2 : p.a;
  const int64_t k = second ? p.k2 : p.k;
  if (a.dtype == DType::kF32 && !turns_back(a, p.m, p.n, k, false)) return 0;
  return quotient_up(p.m * quotient_up(k, kTurnedStep) * kTurnedStep, 16) * 16;
}

int64_t WordOperands::pack_tasks() const {
  return a_as_it_is_ ? 0 : quotient_up(a_length(), 64);
}

// Packs 64 rows of `a`, or 64 words along k if `a` stays transposed.
void WordOperands::pack_a(int64_t task) const {
  const int64_t first = task * 64, count = std::min<int64_t>(64, a_length() - first);
  if (a_across_) {
    const int64_t per_word = ops_->pairs ? 2 : 1, row = first * per_word;
    for (int64_t column = 0; column < m_; column += kTurnedBlock) {
      const int64_t width = std::min(kTurnedBlock, m_ - column);
      ops_->pack_down(at(a_.data, a_.dtype, row * m_ + column), a_.dtype, m_, std::min(k_ - row, count * per_word),
                      width, count * per_word, width, packed_a_ + column * words_ + first * width);
    }
  } else if (a_.turned) {
    ops_->pack_turned(at(a_.data, a_.dtype, first), a_.dtype, m_, k_, count, words_, packed_a_ + first * words_);
  } else {
    ops_->pack_across(at(a_.data, a_.dtype, first * k_), a_.dtype, k_, count, k_, count, words_,
                      packed_a_ + first * words_);
  }
}

// Packs a slice of b's columns: the words [first, first + count) along k, in rows of panel.width() words.
void WordOperands::pack_b(const Panel& panel, int64_t first, int64_t count, Word* to) const {
  const int64_t per_word = ops_->pairs ? 2 : 1, row = first * per_word, width = panel.width();
  const int64_t rows = std::min(k_ - row, count * per_word);
  if (b_.turned) {
    ops_->pack_turned(at(b_.data, b_.dtype, panel.column * k_ + row), b_.dtype, k_, panel.columns, rows, width, to);
    const int64_t filled = quotient_up(rows, per_word);
    std::fill_n(to + filled * width, (count - filled) * width, Word{0});
  } else {
    ops_->pack_down(at(b_.data, b_.dtype, row * n_ + panel.column), b_.dtype, n_, rows, panel.columns, count * per_word,
                    width, to);
  }
}

void WordOperands::fetch_b(const Panel& panel, int64_t first, int64_t count, int64_t part, int64_t parts) const {
  constexpr int64_t kLine = 64;  // bytes of a line of the cache
  const int64_t per_word = ops_->pairs ? 2 : 1, row = first * per_word, rows = std::min(k_ - row, count * per_word);
  const int64_t stored = b_.turned ? panel.columns : rows, step = b_.turned ? k_ : n_;
  const int64_t bytes = (b_.turned ? rows : panel.columns) * byte_size(b_.dtype);
  const int64_t start = b_.turned ? panel.column * k_ + row : row * n_ + panel.column;
  for (int64_t r = stored * part / parts; r < stored * (part + 1) / parts; ++r) {
    const char* const from = static_cast<const char*>(at(b_.data, b_.dtype, start + r * step));
    for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(from + byte, 0, 2);
  }
}

// Calls use(left) for the rows [row, row + rows) of `a`, from the word `from` on: once, or once for each block.
template <typename Use>
void WordOperands::each_left(int64_t row, int64_t rows, int64_t from, const Use& use) const {
  const Word* const a = a_as_it_is_ ? static_cast<const Word*>(a_.data) : packed_a_;
  if (!a_across_) return use(Left{row, rows, a + row * words_ + from, words_});
  if (a_as_it_is_) return use(Left{row, rows, a + from * m_ + row, m_});
  for (const int64_t end = row + rows; row < end;) {
    const int64_t block = row / kTurnedBlock * kTurnedBlock, width = std::min(kTurnedBlock, m_ - block);
    const int64_t count = std::min(end, block + width) - row;
    use(Left{row, count, a + block * words_ + from * width + row - block, width});
    row += count;
  }
}

void WordOperands::multiply(const Panel& panel, int64_t first, int64_t count, Word* slice, float* sums, int64_t sum_row,
                            bool accumulate, uint16_t* result) const {
  const int64_t length = slice_length();
  for (int64_t from = first; from < first + count; from += length) {
    const int64_t depth = std::min(length, first + count - from), next = from + depth;
    pack_b(panel, from, depth, slice);
    const bool fetches = next < first + count && panel.rows >= kFewestRowsToFetch;
    const int64_t parts = fetches ? kParts : 1;
    const int64_t step = quotient_up(quotient_up(panel.rows, parts), row_step()) * row_step();
    for (int64_t r = 0, part = 0; r < panel.rows; r += step, ++part) {
      if (fetches) fetch_b(panel, next, std::min(length, first + count - next), part, parts);
      const int64_t row = panel.row + r, rows = std::min(step, panel.rows - r), width = panel.width();
      float* const c = sums + r * sum_row;
      const bool adds = accumulate || from > first;
      each_left(row, rows, from, [&](const Left& left) {
        float* const to = c + (left.row - row) * sum_row;
        if (result != nullptr && next >= first + count)
          ops_->last_product(left.rows, width, depth, left.words, left.stride, a_across_, slice, width, to, sum_row,
                             adds, result + (left.row - panel.row) * n_, n_);
        else
          ops_->product(left.rows, width, depth, left.words, left.stride, a_across_, slice, width, to, sum_row, adds);
      });
    }
  }
}

}  // namespace fettle::cpu
