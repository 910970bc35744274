// Tests the search for the largest size that fits, on functions whose answers are known.
#include <gtest/gtest.h>

#include <bit>

#include "plan/fit.h"

namespace fettle {
namespace {

struct Counted {
  std::function<int64_t(int64_t)> needed;
  int64_t limit;
  int tries = 0;

  std::optional<int64_t> run(int64_t start, const std::function<int64_t(int64_t)>& grain, int64_t most) {
    return largest_size(
        [&](int64_t size) {
          ++tries;
          return SizeTried{size, needed(size), limit};
        },
        start, grain, most);
  }
};

int64_t one(int64_t) {
  return 1;
}

TEST(LargestSize, IsFoundInFewTriesOnALine) {
  for (int64_t start : {1, 7, 64, 1000}) {
    Counted line{[](int64_t size) { return 1000 + 13 * size; }, 5000};
    EXPECT_EQ(line.run(start, one, 65536), 307) << start;
    EXPECT_LE(line.tries, 6) << start;
  }
}

TEST(LargestSize, IsFoundOnStairsAndCurves) {
  Counted stairs{[](int64_t size) { return 1000 + 500 * (size / 16); }, 4400};
  EXPECT_EQ(stairs.run(2, one, 65536), 16 * 6 + 15);
  Counted square{[](int64_t size) { return size * size; }, 1'000'000};
  EXPECT_EQ(square.run(8, one, 65536), 1000);
  EXPECT_LE(square.tries, 20);
}

TEST(LargestSize, EndsOfTheRange) {
  EXPECT_EQ((Counted{[](int64_t) { return 10; }, 5}.run(8, one, 100)), std::nullopt);
  EXPECT_EQ((Counted{[](int64_t) { return 5; }, 5}.run(8, one, 100)), 100) << "a flat line fits up to the end";
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 1}.run(64, one, 100)), 1);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 99}.run(200, one, 100)), 99);
}

TEST(LargestSize, IsAMultipleOfTheGrain) {
  auto grain = [](int64_t size) {
    return std::max<int64_t>(8, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size))) / 64);
  };
  Counted line{[](int64_t size) { return 100 * size; }, 100 * 5000};
  EXPECT_EQ(line.run(2048, grain, 131072), 4992) << "4096 / 64 = 64 divides it, 5000 does not";
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 8}.run(64, grain, 4096)), 8);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 7}.run(64, grain, 4096)), std::nullopt);
  EXPECT_EQ((Counted{[](int64_t size) { return size; }, 1 << 20}.run(64, grain, 4100)), 4096);
}

}  // namespace
}  // namespace fettle
