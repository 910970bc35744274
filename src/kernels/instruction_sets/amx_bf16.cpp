#define FETTLE_LANES 16
#define FETTLE_PAIRS
#include "kernels/instruction_sets/block_ops_body.h"
#include "kernels/instruction_sets/tiles.h"

// Products by AMX: a tile has 16 rows of 16 words, and one instruction adds the product of two tiles to a third.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
namespace fettle::cpu {
namespace {

constexpr int64_t kTurnedWords = 128;  // turned_tile_rows() transposes this many words along k at once

// Computes c = (accumulate ? c : 0) + a * b, where c has 16 * kRows rows and 16 * kColumns columns. k is a multiple of
// 16 words. Tiles 0 to 3 contain parts of c. Tiles 4 and 5 contain rows of a. Tiles 6 and 7 contain columns of b.
template <int kRows, int kColumns>
void tile_block(int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c, int64_t c_row,
                bool accumulate) {
  const int64_t a_stride = a_row * 4, b_stride = b_row * 4, c_stride = c_row * 4;
  load_sums<kRows, kColumns>(c, kTile, kTile * c_row, c_stride, accumulate);
  for (int64_t i = 0; i < k; i += kTile) {
    const Word* const column = b + i * b_row;
    _tile_loadd(4, a + i, a_stride);
    _tile_loadd(6, column, b_stride);
    if constexpr (kColumns == 2) _tile_loadd(7, column + kTile, b_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) {
      _tile_loadd(5, a + kTile * a_row + i, a_stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
  }
  store_sums<kRows, kColumns>(c, kTile, kTile * c_row, c_stride);
}

template <int kRows>
void tile_rows(int64_t n, int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c,
               int64_t c_row, bool accumulate) {
  int64_t column = 0;
  for (; column + 2 * kTile <= n; column += 2 * kTile)
    tile_block<kRows, 2>(k, a, a_row, b + column, b_row, c + column, c_row, accumulate);
  if (column < n) tile_block<kRows, 1>(k, a, a_row, b + column, b_row, c + column, c_row, accumulate);
}

// Like tile_rows(), but `a` is transposed. First transposes `a` back.
template <int kRows>
void turned_tile_rows(int64_t n, int64_t k, const Word* a, int64_t a_row, const Word* b, int64_t b_row, float* c,
                      int64_t c_row, bool accumulate) {
  alignas(64) Word turned[kRows * kTile * kTurnedWords];
  for (int64_t first = 0; first < k; first += kTurnedWords) {
    const int64_t words = k - first < kTurnedWords ? k - first : kTurnedWords;
    for (int64_t i = 0; i < words; i += kTile)
      for (int64_t r = 0; r < kRows * kTile; r += kTile) {
        Ints block[kLanes];
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) block[j] = load_ints(a + (first + i + j) * a_row + r);
        turn(block);
#pragma GCC unroll 16
        for (int j = 0; j < kLanes; ++j) store(turned + (r + j) * kTurnedWords + i, block[j]);
      }
    asm volatile("" ::: "memory");  // GCC 12 does not know that loading tiles reads memory
    tile_rows<kRows>(n, words, turned, kTurnedWords, b + first * b_row, b_row, c, c_row, accumulate || first > 0);
  }
}

// Computes BlockOps::product: the whole tiles with AMX, the remaining rows and the remaining part of k with vectors.
void tile_product(int64_t m, int64_t n, int64_t k, const Word* a, int64_t a_row, bool a_transposed, const Word* b,
                  int64_t b_row, float* c, int64_t c_row, bool accumulate) {
  const int64_t rows = m / kTile * kTile, words = k / kTile * kTile;
  if (rows == 0 || words == 0) return product(m, n, k, a, a_row, a_transposed, b, b_row, c, c_row, accumulate);
  const int64_t row_step = a_transposed ? 1 : a_row, word_step = a_transposed ? a_row : 1;
  _tile_loadconfig(&kConfig);
  int64_t r = 0;
  for (; r + 2 * kTile <= rows; r += 2 * kTile)
    (a_transposed ? turned_tile_rows<2> : tile_rows<2>)(n, words, a + r * row_step, a_row, b, b_row, c + r * c_row,
                                                        c_row, accumulate);
  if (r < rows)
    (a_transposed ? turned_tile_rows<1> : tile_rows<1>)(n, words, a + r * row_step, a_row, b, b_row, c + r * c_row,
                                                        c_row, accumulate);
  _tile_release();
  if (words < k)
    product(rows, n, k - words, a + words * word_step, a_row, a_transposed, b + words * b_row, b_row, c, c_row, true);
  if (rows < m)
    product(m - rows, n, k, a + rows * row_step, a_row, a_transposed, b, b_row, c + rows * c_row, c_row, accumulate);
}

// Packs a whole block whose lines are stored one after the other. A word has two neighbours along k.
template <bool kLeft>
void pack_lines(const uint16_t* from, int64_t stride, Word* to) {
  Ints words[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) words[i] = load_ints(from + i * stride);
  if constexpr (!kLeft) turn(words);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(to + i * kTile, words[i]);
}

// Packs two neighbouring whole blocks whose lines are stored across: a stored row has an element of each of 32 lines,
// and fills a line of the cache.
template <bool kLeft>
void pack_across_lines(const uint16_t* from, int64_t stride, Word* first, Word* second) {
  typedef uint16_t Halves __attribute__((vector_size(kBytes)));
  Halves places[2];
  for (int i = 0; i < 2 * kLanes; ++i)
    for (int block = 0; block < 2; ++block)
      places[block][i] = static_cast<uint16_t>(i / 2 + block * kLanes + i % 2 * 2 * kLanes);
  Ints words[2][kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const Halves low = (Halves)load_ints(from + 2 * i * stride), high = (Halves)load_ints(from + (2 * i + 1) * stride);
    for (int block = 0; block < 2; ++block) words[block][i] = (Ints)__builtin_shuffle(low, high, places[block]);
  }
  for (int block = 0; block < 2; ++block) {
    if constexpr (kLeft) turn(words[block]);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store((block == 0 ? first : second) + i * kTile, words[block][i]);
  }
}

// Packs up to two lines of blocks. First copies blocks that are not whole.
template <bool kAlong, bool kLeft>
void pack_two(const uint16_t* from, int64_t stride, int64_t lines, int64_t depth, Word* to, int64_t to_line) {
  constexpr int64_t kLines = 2 * kTileLines, kStored = kAlong ? kLines : kTileDepth,
                    kWidth = kAlong ? kTileDepth : kLines;
  alignas(64) uint16_t copy[kLines * kTileDepth];
  alignas(64) Word unused[kTileWords];
  if ((kAlong ? lines % kTileLines != 0 : lines < kLines) || depth < kTileDepth) {
    for (int64_t i = 0; i < kStored * kWidth; ++i) copy[i] = 0;
    for (int64_t r = 0; r < (kAlong ? lines : depth); ++r)
      for (int64_t i = 0; i < (kAlong ? depth : lines); ++i) copy[r * kWidth + i] = from[r * stride + i];
    from = copy;
    stride = kWidth;
  }
  if constexpr (kAlong) {
    pack_lines<kLeft>(from, stride, to);
    if (lines > kTileLines) pack_lines<kLeft>(from + kTileLines * stride, stride, to + to_line);
  } else {
    pack_across_lines<kLeft>(from, stride, to, lines > kTileLines ? to + to_line : unused);
  }
}

// Computes TileOps::pack.
void pack_blocks(const void* from, DType, int64_t stride, bool along, int64_t lines, int64_t depth, bool left, Word* to,
                 int64_t to_line) {
  const auto run = along ? (left ? pack_two<true, true> : pack_two<true, false>)
                         : (left ? pack_two<false, true> : pack_two<false, false>);
  for (int64_t i = 0; i < lines; i += 2 * kTileLines)
    run(static_cast<const uint16_t*>(from) + i * (along ? stride : 1), stride,
        lines - i < 2 * kTileLines ? lines - i : 2 * kTileLines, depth, to + i / kTileLines * to_line, to_line);
}

struct Blocks {
  template <int kRows, int kColumns>
  static void multiply(const TileProduct& p) {
    for (int64_t i = 0; i < p.blocks; ++i) {
      load_a<kRows>(p.a, p.a.words + i * p.a.block);
      load_b<kColumns>(p.b + i * kTileWords, p.b_line);
      multiply_tiles<kRows, kColumns>();
    }
  }
};

constexpr TileOps kTileOps{.pieces = 1, .pack = pack_blocks, .product = product_of_blocks<Blocks>};

constexpr BlockOps make_tile_table() {
  BlockOps table = make_table("amx_bf16");
  table.product = tile_product;
  table.last_product = nullptr;
  table.row_step = 2 * kTile;
  table.word_step = kTile;
  table.tiles = &kTileOps;
  return table;
}

}  // namespace

extern const BlockOps k_amx_bf16;
const BlockOps k_amx_bf16 = make_tile_table();

}  // namespace fettle::cpu
