// Tests which operands of calls become stacks (graph/slices_in_place.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/custom_call.h"
#include "graph/ops.h"
#include "graph/program.h"
#include "graph/scan.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;
using Tensors = std::vector<Tensor>;

constexpr int64_t kTrips = 4;

Tensor call(const Tensors& operands, bool reads_slices) {
  const Shape result = operands[0].shape();
  return custom_call({.kernel = "made/1", .target = "made", .results = {result}, .reads_slices = reads_slices},
                     operands)[0];
}

// Returns the text of a program that calls `body` in a loop over three stacks of slices [3].
std::string text_of(const ScanBody& body) {
  Program program;
  BuildScope scope(program.block());
  const Shape stack{DType::kF32, {kTrips, 3}};
  Tensors xs;
  for (const char* name : {"a", "b", "c"}) xs.push_back(program.input(name, stack));
  const Tensor start = program.input("start", {DType::kF32, {3}});
  const ScanStep out = scan(kTrips, {start}, xs, body);
  program.output("last", out.carries[0]);
  for (const Tensor& y : out.ys) program.output("stack", y);
  return program.text();
}

TEST(SlicesInPlace, OnlySlicesThatNothingElseReads) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    // A call and an addition read the second slice, so the loop cuts it out.
    return {{call({c[0], x[0], x[1], x[2]}, true) + x[1]}, {}};
  });
  EXPECT_THAT(text, HasSubstr("slices = array<i64: 1, 0, 3, 0>"));
  EXPECT_THAT(text, HasSubstr("(tensor<3xf32>, tensor<4x3xf32>, tensor<3xf32>, tensor<4x3xf32>, tensor<i32>)"));
}

TEST(SlicesInPlace, NotSlicesThatTheLoopReturns) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    return {{call({c[0], x[0]}, true)}, {x[0]}};
  });
  EXPECT_THAT(text, Not(HasSubstr("slices =")));
}

TEST(SlicesInPlace, NotForCallsThatCannotReadSlices) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    return {{call({call({c[0], x[0]}, true), x[0], x[1]}, false)}, {}};
  });
  EXPECT_THAT(text, Not(HasSubstr("slices =")));
}

// An inner loop has slices of its own. It reads the outer loop's slice as a whole array.
TEST(SlicesInPlace, OnlyOfTheLoopThatContainsTheCall) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const ScanStep inner =
        scan(3, {c[0]}, {x[0]}, [&](const Tensor&, const Tensors& in, const Tensors& part) -> ScanStep {
          return {{call({in[0], part[0], x[1]}, true)}, {}};
        });
    return {inner.carries, {}};
  });
  EXPECT_THAT(text, HasSubstr("slices = array<i64: 1, 0>"));
  EXPECT_THAT(text, HasSubstr("(tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i32>)"));
}

TEST(SlicesInPlace, ThroughReshapes) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    return {{call({c[0], reshape(x[0], {3, 1})}, true)}, {}};
  });
  EXPECT_THAT(text, HasSubstr("slices = array<i64: 1, 0>"));
  EXPECT_THAT(text, HasSubstr("(tensor<3xf32>, tensor<4x3x1xf32>, tensor<i32>)"));
}

}  // namespace
}  // namespace fettle
