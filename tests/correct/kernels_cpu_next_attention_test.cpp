// Compares the CPU's attention of the next token with its definition in double precision, for each instruction set of
// this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/arrays/host_array.h"
#include "base/arrays/trial_numbers.h"
#include "block_tasks.h"
#include "cached_definition.h"
#include "kernels/cpu/attention/next_attention.h"

namespace fettle::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Next {
  std::string name;
  std::vector<int32_t> filled;  // one number per row
  int64_t keys, heads = 4, key_heads = 2, width = 16;
  int64_t window = 0, chunk = 0;  // 0: none
  float softcap = 0;
  bool slopes = false;

  int64_t rows() const { return static_cast<int64_t>(filled.size()); }
};

struct NextInputs {
  Next of;
  HostArray q, k, v;
  std::vector<float> slopes;

  NextInputs(const Next& next, DType dtype)
      : of(next),
        q(trial_numbers({dtype, {next.rows(), 1, next.heads, next.width}}, 1, 3)),
        k(trial_numbers({dtype, {next.rows(), next.keys, next.key_heads, next.width}}, 2, 2)),
        v(trial_numbers({dtype, {next.rows(), next.keys, next.key_heads, next.width}}, 3, 2)) {
    // What lies after the query must not be read.
    const int64_t key = of.key_heads * of.width;
    for (int64_t row = 0; row < of.rows(); ++row)
      for (int64_t i = (of.filled[row] + 1) * key; i < of.keys * key; ++i)
        for (HostArray* array : {&k, &v}) store_float(array->data(), dtype, row * of.keys * key + i, kNan);
    for (int64_t n = 0; n < of.heads; ++n) slopes.push_back(0.02F * static_cast<float>(n + 1));
  }

  NextAttention problem() const {
    return {.rows = of.rows(),
            .keys = of.keys,
            .heads = of.heads,
            .key_heads = of.key_heads,
            .width = of.width,
            .dtype = q.shape().dtype,
            .window = of.window,
            .chunk = of.chunk,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(of.width))),
            .softcap = of.softcap,
            .slopes = of.slopes ? slopes.data() : nullptr,
            .filled = of.filled.data(),
            .q = q.data(),
            .k = k.data(),
            .v = v.data()};
  }
};

std::vector<double> definition_of(const NextInputs& in) {
  return attention_to_cache(cache_options(in.of, in.problem()), in.q, in.k, in.v,
                            {in.of.filled.begin(), in.of.filled.end()});
}

HostArray attended(const NextInputs& in, const BlockOps& ops, const ParallelFor& parallel) {
  NextAttention p = in.problem();
  p.ops = &ops;
  HostArray out(in.q.shape());
  // NaN shows whether the workspace is read before it is written.
  std::vector<float> workspace(next_attention_workspace(p) / 4, kNan);
  attend_next(p, out.data(), workspace.data(), parallel);
  return out;
}

class CpuNextAttention : public testing::TestWithParam<Next> {};

TEST_P(CpuNextAttention, EqualsItsDefinition) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const NextInputs inputs(GetParam(), dtype);
    expect_definition(definition_of(inputs), dtype, [&](const BlockOps& ops, const ParallelFor& parallel) {
      return attended(inputs, ops, parallel);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, CpuNextAttention,
    testing::Values(
        Next{"first_token", {0}, 64}, Next{"last_of_the_cache", {511}, 512}, Next{"end_of_a_task", {255}, 512},
        Next{"start_of_a_task", {256}, 512}, Next{"rows", {3, 700, 0, 255, 511, 512}, 701},
        Next{.name = "as_135m", .filled = {513, 20}, .keys = 1024, .heads = 9, .key_heads = 3, .width = 64},
        Next{.name = "one_key_head", .filled = {300}, .keys = 512, .heads = 11, .key_heads = 1, .width = 128},
        Next{.name = "one_query_per_head", .filled = {300}, .keys = 301, .heads = 5, .key_heads = 5},
        Next{.name = "odd_width", .filled = {290, 100}, .keys = 320, .heads = 6, .key_heads = 2, .width = 75},
        Next{.name = "wide", .filled = {290}, .keys = 320, .heads = 2, .key_heads = 1, .width = 256},
        Next{.name = "short_window", .filled = {300, 2}, .keys = 320, .width = 40, .window = 7},
        Next{.name = "window", .filled = {600, 255}, .keys = 640, .width = 128, .window = 150},
        Next{.name = "softcap", .filled = {190}, .keys = 192, .softcap = 2},
        Next{.name = "slopes", .filled = {300, 31}, .keys = 320, .slopes = true},
        Next{.name = "chunks", .filled = {319, 49, 50}, .keys = 320, .chunk = 50},
        Next{.name = "all_options",
             .filled = {420, 77, 128},
             .keys = 448,
             .heads = 6,
             .key_heads = 2,
             .width = 72,
             .window = 90,
             .chunk = 128,
             .softcap = 3,
             .slopes = true}),
    [](const auto& info) { return info.param.name; });

// A row gets the same bits whatever the other rows are.
TEST(CpuNextAttentionRows, DoNotDependOnEachOther) {
  const Next both{.name = "", .filled = {5, 600}, .keys = 640};
  for (const BlockOps* ops : usable_block_ops(DType::kF32)) {
    const NextInputs inputs(both, DType::kF32);
    const HostArray together = attended(inputs, *ops, on_one_thread);
    for (int64_t row = 0; row < 2; ++row) {
      NextAttention p = inputs.problem();
      p.ops = ops;
      p.rows = 1;
      p.filled += row;
      const int64_t query = p.heads * p.width, keys = p.keys * p.key_heads * p.width;
      p.q = static_cast<const float*>(p.q) + row * query;
      p.k = static_cast<const float*>(p.k) + row * keys;
      p.v = static_cast<const float*>(p.v) + row * keys;
      std::vector<float> alone(query), workspace(next_attention_workspace(p) / 4);
      attend_next(p, alone.data(), workspace.data(), on_one_thread);
      EXPECT_EQ(std::memcmp(alone.data(), reinterpret_cast<const float*>(together.data()) + row * query, query * 4), 0)
          << ops->name << " row " << row;
    }
  }
}

// A number of filled keys that is out of range is taken as the nearest one in range.
TEST(CpuNextAttentionRows, StayInTheCache) {
  NextInputs inputs({.name = "", .filled = {0, 63}, .keys = 64}, DType::kF32);
  for (const BlockOps* ops : usable_block_ops(DType::kF32)) {
    inputs.of.filled = {0, 63};
    const HostArray wanted = attended(inputs, *ops, on_one_thread);
    inputs.of.filled = {-5, 1000};
    const HostArray got = attended(inputs, *ops, on_one_thread);
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.shape().bytes()), 0) << ops->name;
  }
}

}  // namespace
}  // namespace fettle::cpu
