#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/parallel.h"

namespace fettle {
namespace {

TEST(ParallelFor, EachIndexOnce) {
  for (int threads : {1, 3, 40}) {
    std::vector<std::atomic<int>> calls(1000);
    parallel_for(1000, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
  }
  parallel_for(0, 4, [](int64_t) { FAIL(); });
}

TEST(ParallelFor, AnExceptionStopsTheRestAndIsThrown) {
  for (int threads : {1, 4}) {
    std::atomic<int> calls{0};
    EXPECT_THROW(parallel_for(1000000, threads,
                              [&](int64_t i) {
                                ++calls;
                                if (i == 10) throw std::runtime_error("ten");
                              }),
                 std::runtime_error);
    EXPECT_LT(calls, 1000000);
  }
}

}  // namespace
}  // namespace fettle
