#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/host_array.h"
#include "checkpoint/slice.h"

namespace fettle {
namespace {

using Copied = std::tuple<int64_t, int64_t, int64_t>;

std::vector<Copied> runs(const Box& box, const Dims& source, const Dims& target, const Dims& target_start) {
  std::vector<Copied> all;
  for_each_run(box, source, target, target_start,
               [&](int64_t from, int64_t to, int64_t count) { all.emplace_back(from, to, count); });
  return all;
}

TEST(Slice, WholeArrayIsOneRun) {
  EXPECT_THAT(runs(Box::whole({2, 3, 4}), {2, 3, 4}, {2, 3, 4}, {0, 0, 0}), testing::ElementsAre(Copied{0, 0, 24}));
  EXPECT_THAT(runs(Box::whole({}), {}, {}, {}), testing::ElementsAre(Copied{0, 0, 1}));
}

TEST(Slice, RowsAreOneRunAndColumnsOneEach) {
  EXPECT_THAT(runs({{1, 0}, {2, 4}}, {5, 4}, {2, 4}, {0, 0}), testing::ElementsAre(Copied{4, 0, 8}));
  EXPECT_THAT(runs({{0, 1}, {3, 2}}, {3, 4}, {3, 2}, {0, 0}),
              testing::ElementsAre(Copied{1, 0, 2}, Copied{5, 2, 2}, Copied{9, 4, 2}));
}

TEST(Slice, NoRunsInAnEmptyBox) {
  EXPECT_TRUE(runs({{1, 2}, {0, 2}}, {3, 4}, {3, 4}, {0, 0}).empty());
  EXPECT_TRUE(runs(Box::whole({0, 3}), {0, 3}, {0, 3}, {0, 0}).empty());
}

// Against an element-by-element copy, over random ranks, dims and boxes.
TEST(Slice, RunsCopyEachElementOnceToItsPlace) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 500; ++round) {
    const size_t rank = static_cast<size_t>(1 + below(4));
    Dims source(rank), target(rank), target_start(rank);
    Box box{Dims(rank), Dims(rank)};
    for (size_t d = 0; d < rank; ++d) {
      source[d] = 1 + below(5);
      box.size[d] = 1 + below(source[d]);
      box.start[d] = below(source[d] - box.size[d] + 1);
      target[d] = box.size[d] + below(2);
      target_start[d] = below(target[d] - box.size[d] + 1);
    }
    std::vector<int64_t> got(static_cast<size_t>(product(target)), -1), wanted = got;
    for_each_run(box, source, target, target_start, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(got[static_cast<size_t>(to + i)], -1);
        got[static_cast<size_t>(to + i)] = from + i;
      }
    });
    Dims at(rank, 0);
    for (int64_t i = 0; i < box.elements(); ++i) {
      int64_t from = 0, to = 0, rest = i;
      for (size_t d = rank; d-- > 0; rest /= box.size[d]) at[d] = rest % box.size[d];
      for (size_t d = 0; d < rank; ++d) {
        from = from * source[d] + box.start[d] + at[d];
        to = to * target[d] + target_start[d] + at[d];
      }
      wanted[static_cast<size_t>(to)] = from;
    }
    ASSERT_EQ(got, wanted) << box.to_string() << " of " << to_string(source) << " into " << to_string(target);
  }
}

TEST(Slice, BoxesAreCheckedAgainstDims) {
  EXPECT_TRUE(is_inside({{1, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{2, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{-1}, {1}}, {3}));
  EXPECT_FALSE(is_inside({{0}, {1}}, {3, 4}));
  EXPECT_FALSE(is_inside({{std::numeric_limits<int64_t>::max()}, {2}}, {3}));
  EXPECT_EQ(intersect({{0, 2}, {4, 4}}, {{2, 0}, {4, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {2}}, {{2}, {2}}).elements(), 0);
  EXPECT_THROW(runs({{2}, {2}}, {3}, {2}, {0}), InternalError);
}

TEST(Slice, EveryFloatPairConvertsAsThroughOneElement) {
  std::vector<float> values{0, -0.0f, 1, -2.5f, 3.14159f, 65504, 70000, 1e-8f, 1e38f, 3.4e38f, NAN, -INFINITY};
  values.resize(3000);
  for (size_t i = 12; i < values.size(); ++i)
    values[i] = std::ldexp(static_cast<float>(i) / 1024, static_cast<int>(i % 60) - 30);
  const std::vector<DType> floats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  const HostArray f32 = HostArray::from({DType::kF32, {static_cast<int64_t>(values.size())}}, values);
  for (DType from : floats) {
    for (DType to : floats) {
      const HostArray source = f32.to(from);
      const HostArray wanted = source.to(to);
      HostArray got(source.shape().with_dtype(to));
      convert_elements(source.data(), from, got.data(), to, source.shape().elements());
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(wanted.bytes())), 0)
          << stablehlo_name(from) << " to " << stablehlo_name(to);
    }
  }
}

TEST(Slice, UnalignedBytesConvert) {
  const std::vector<float> values{1.5f, -2, 300};
  std::vector<std::byte> source(1 + 12), target(1 + 6);
  std::memcpy(source.data() + 1, values.data(), 12);
  convert_elements(source.data() + 1, DType::kF32, target.data() + 1, DType::kBF16, 3);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(load_float(target.data() + 1, DType::kBF16, i), values[static_cast<size_t>(i)]);
}

TEST(Slice, IntegersOnlyCopy) {
  const std::vector<int32_t> values{1, -2};
  std::vector<int32_t> out(2);
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  convert_elements(source, DType::kI32, reinterpret_cast<std::byte*>(out.data()), DType::kI32, 2);
  EXPECT_EQ(out, values);
  EXPECT_THROW(convert_elements(source, DType::kI32, reinterpret_cast<std::byte*>(out.data()), DType::kF32, 2),
               InternalError);
}

}  // namespace
}  // namespace fettle
