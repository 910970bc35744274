#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "base/arrays/box_copy.h"
#include "base/error.h"

namespace fettle {
namespace {

using Copied = std::tuple<int64_t, int64_t, int64_t>;

std::vector<Copied> runs(const Box& box, const Dims& source, const Dims& target, const Dims& target_start) {
  std::vector<Copied> all;
  for_each_run(box, source, target, target_start,
               [&](int64_t from, int64_t to, int64_t count) { all.emplace_back(from, to, count); });
  return all;
}

TEST(BoxCopy, WholeArrayIsOneRun) {
  EXPECT_THAT(runs(Box::whole({2, 3, 4}), {2, 3, 4}, {2, 3, 4}, {0, 0, 0}), testing::ElementsAre(Copied{0, 0, 24}));
  EXPECT_THAT(runs(Box::whole({}), {}, {}, {}), testing::ElementsAre(Copied{0, 0, 1}));
}

TEST(BoxCopy, RowsAreOneRunAndColumnsOneEach) {
  EXPECT_THAT(runs({{1, 0}, {2, 4}}, {5, 4}, {2, 4}, {0, 0}), testing::ElementsAre(Copied{4, 0, 8}));
  EXPECT_THAT(runs({{0, 1}, {3, 2}}, {3, 4}, {3, 2}, {0, 0}),
              testing::ElementsAre(Copied{1, 0, 2}, Copied{5, 2, 2}, Copied{9, 4, 2}));
}

TEST(BoxCopy, NoRunsInAnEmptyBox) {
  EXPECT_TRUE(runs({{1, 2}, {0, 2}}, {3, 4}, {3, 4}, {0, 0}).empty());
  EXPECT_TRUE(runs(Box::whole({0, 3}), {0, 3}, {0, 3}, {0, 0}).empty());
}

// Compares for_each_run, which copies runs of consecutive elements, with a copy of single elements, for random ranks,
// dims and boxes.
TEST(BoxCopy, RunsCopyEachElementOnceToItsPlace) {
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

TEST(BoxCopy, BoxesAreCheckedAgainstDims) {
  EXPECT_TRUE(is_inside({{1, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{2, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(is_inside({{-1}, {1}}, {3}));
  EXPECT_FALSE(is_inside({{0}, {1}}, {3, 4}));
  EXPECT_FALSE(is_inside({{std::numeric_limits<int64_t>::max()}, {2}}, {3}));
  EXPECT_EQ(intersect({{0, 2}, {4, 4}}, {{2, 0}, {4, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_EQ(intersect({{0}, {2}}, {{2}, {2}}).elements(), 0);
  EXPECT_THROW(runs({{2}, {2}}, {3}, {2}, {0}), InternalError);
}

// Copies boxes out of arrays and back, and compares both copies with plain index arithmetic. In each dim, a box has all
// indices, the lower half or the upper half.
TEST(BoxCopy, BoxesAreCopiedElementForElement) {
  const std::vector<Dims> shapes = {{}, {6}, {4, 6}, {2, 3, 4}, {2, 4, 2, 6}, {3, 1, 5}};
  for (const Dims& dims : shapes) {
    const Shape shape{DType::kI16, dims};
    const Box whole = Box::whole(dims);
    std::vector<int16_t> global(shape.elements());
    std::iota(global.begin(), global.end(), int16_t{0});
    // Each dim is cut in three ways, so 4 dims give 81 boxes: the ternary digits of `choice` select the cuts.
    for (int choice = 0; choice < 81; ++choice) {
      Box box{Dims(dims.size()), Dims(dims.size())};
      int rest = choice;
      for (size_t d = 0; d < dims.size(); ++d, rest /= 3) {
        const int64_t half = dims[d] / 2;
        box.start[d] = rest % 3 == 1 ? half : 0;
        box.size[d] = rest % 3 == 0 ? dims[d] : (rest % 3 == 1 ? dims[d] - half : half);
      }
      std::vector<int16_t> shard(box.elements(), -1), back(global.size(), -1);
      copy_common(whole, reinterpret_cast<const std::byte*>(global.data()), box,
                  reinterpret_cast<std::byte*>(shard.data()), 2);
      copy_common(box, reinterpret_cast<const std::byte*>(shard.data()), whole,
                  reinterpret_cast<std::byte*>(back.data()), 2);
      for (int64_t i = 0; i < shape.elements(); ++i) {
        int64_t offset = 0;
        bool inside = true;
        for (int64_t d = shape.rank() - 1, r = i, scale = 1; d >= 0; --d) {
          const int64_t at = r % dims[d] - box.start[d];
          inside = inside && at >= 0 && at < box.size[d];
          offset += at * scale;
          scale *= box.size[d];
          r /= dims[d];
        }
        if (inside) {
          EXPECT_EQ(shard[offset], global[i]);
        }
        EXPECT_EQ(back[i], inside ? global[i] : -1);
      }
    }
  }
}

TEST(BoxCopy, SingleRunEqualsForEachRun) {
  const Dims dims{3, 1, 4, 5};
  for (int64_t a : {1, 2, 3})
    for (int64_t b : {1, 3, 4})
      for (int64_t c : {1, 4, 5}) {
        const Box box{{0, 0, 0, 0}, {a, 1, b, c}};
        EXPECT_EQ(is_one_run(box, dims), runs(box, dims, box.size, {0, 0, 0, 0}).size() == 1) << box.to_string();
      }
  EXPECT_TRUE(is_one_run(Box::whole({}), {}));
}

TEST(BoxCopy, OnlyTheOverlapIsCopied) {
  const std::vector<int8_t> rows{0, 1, 2, 3, 4, 5, 6, 7};  // rows 1 and 2 of a [4, 4] array
  std::vector<int8_t> columns(8, -1);                      // columns 2 and 3 of the same array
  const Box from{{1, 0}, {2, 4}}, to{{0, 2}, {4, 2}};
  copy_common(from, reinterpret_cast<const std::byte*>(rows.data()), to, reinterpret_cast<std::byte*>(columns.data()),
              1);
  EXPECT_THAT(columns, testing::ElementsAre(-1, -1, 2, 3, 6, 7, -1, -1));
  copy_common(from, reinterpret_cast<const std::byte*>(rows.data()), {{3, 2}, {1, 2}}, nullptr, 1);
}

}  // namespace
}  // namespace fettle
