// Compares the CPU's attention to a cache with its definition in double precision, for each instruction set of this
// machine.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/arrays/host_array.h"
#include "base/arrays/trial_numbers.h"
#include "block_tasks.h"
#include "cached_definition.h"
#include "kernels/cpu/attention/attention.h"

namespace fettle::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The queries are at the positions first, first + 1, ... of the keys.
struct Piece {
  std::string name;
  int64_t length, keys, first, heads = 4, key_heads = 2, width = 16;
  int64_t window = 0, chunk = 0;  // 0: none
  float softcap = 0;
  bool slopes = false;
};

struct PieceInputs {
  Piece piece;
  HostArray q, k, v;
  std::vector<int32_t> segments;
  std::vector<float> slopes;

  PieceInputs(const Piece& of, DType dtype)
      : piece(of),
        q(trial_numbers({dtype, {1, of.length, of.heads, of.width}}, 1, 3)),
        k(trial_numbers({dtype, {1, of.keys, of.key_heads, of.width}}, 2, 2)),
        v(trial_numbers({dtype, {1, of.keys, of.key_heads, of.width}}, 3, 2)) {
    // What lies after the filled part must not be read.
    for (int64_t i = (of.first + of.length) * of.key_heads * of.width; i < k.shape().elements(); ++i)
      for (HostArray* array : {&k, &v}) store_float(array->data(), dtype, i, kNan);
    for (int64_t i = 0; i < of.keys; ++i)
      segments.push_back(i >= of.first + of.length ? -9 : of.chunk > 0 ? static_cast<int32_t>(i / of.chunk) : 1);
    for (int64_t n = 0; n < of.heads; ++n) slopes.push_back(0.02F * static_cast<float>(n + 1));
  }

  AttentionProblem problem() const {
    return {.rows = 1,
            .length = piece.length,
            .keys = piece.keys,
            .heads = piece.heads,
            .key_heads = piece.key_heads,
            .width = piece.width,
            .first = piece.first,
            .dtype = q.shape().dtype,
            .window = piece.window,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(piece.width))),
            .softcap = piece.softcap,
            .slopes = piece.slopes ? slopes.data() : nullptr,
            .segments = segments.data(),
            .q = q.data(),
            .k = k.data(),
            .v = v.data()};
  }
};

std::vector<double> definition_of(const PieceInputs& in) {
  return attention_to_cache(cache_options(in.piece, in.problem()), in.q, in.k, in.v, {in.piece.first});
}

HostArray attended(const PieceInputs& in, const BlockOps& ops, const ParallelFor& parallel) {
  AttentionProblem p = in.problem();
  p.ops = &ops;
  HostArray out(in.q.shape());
  // NaN shows whether the workspace is read before it is written.
  std::vector<float> workspace(attention_workspace(p) / 4, kNan);
  attention(p, out.data(), nullptr, workspace.data(), parallel);
  return out;
}

class CpuCachedAttention : public testing::TestWithParam<Piece> {};

TEST_P(CpuCachedAttention, EqualsItsDefinition) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const PieceInputs inputs(GetParam(), dtype);
    expect_definition(definition_of(inputs), dtype, [&](const BlockOps& ops, const ParallelFor& parallel) {
      return attended(inputs, ops, parallel);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pieces, CpuCachedAttention,
    testing::Values(
        Piece{"first_piece", 16, 64, 0}, Piece{"first_of_several_blocks", 128, 512, 0}, Piece{"aligned", 64, 256, 128},
        Piece{"not_aligned", 70, 320, 91}, Piece{"over_the_end_of_a_block", 16, 128, 57},
        Piece{"last_of_the_cache", 130, 512, 382}, Piece{"two_queries", 2, 128, 63},
        Piece{.name = "as_135m", .length = 200, .keys = 512, .first = 201, .heads = 9, .key_heads = 3, .width = 64},
        Piece{.name = "short_window", .length = 100, .keys = 320, .first = 111, .width = 40, .window = 7},
        Piece{.name = "window", .length = 100, .keys = 640, .first = 301, .width = 128, .window = 150},
        Piece{.name = "softcap", .length = 33, .keys = 192, .first = 77, .softcap = 2},
        Piece{.name = "slopes", .length = 90, .keys = 320, .first = 131, .slopes = true},
        Piece{.name = "chunks", .length = 120, .keys = 320, .first = 91, .chunk = 50},
        Piece{.name = "all_options",
              .length = 77,
              .keys = 448,
              .first = 199,
              .heads = 6,
              .key_heads = 2,
              .width = 72,
              .window = 90,
              .chunk = 128,
              .softcap = 3,
              .slopes = true}),
    [](const auto& info) { return info.param.name; });

int64_t products_for(const Piece& piece) {
  const PieceInputs inputs(piece, DType::kF32);
  return counted_products([&](const BlockOps& ops) { attended(inputs, ops, on_one_thread); });
}

// The first of 64 queries at position 100 sees the first 2 blocks of keys, the last one 3; the other 13 blocks of the
// cache are not read. A window of 30 hides the first block. Each block of scores takes two products.
TEST(CpuCachedAttentionBlocks, HiddenOnesAreNotComputed) {
  Piece piece{.name = "", .length = 64, .keys = 1024, .first = 100, .heads = 1, .key_heads = 1};
  EXPECT_EQ(products_for(piece), 2 * 3);
  piece.window = 30;
  EXPECT_EQ(products_for(piece), 2 * 2);
  EXPECT_EQ(attention_flops(PieceInputs(piece, DType::kF32).problem()), 2 * 2 * 2 * 64 * 64 * 16);
}

}  // namespace
}  // namespace fettle::cpu
