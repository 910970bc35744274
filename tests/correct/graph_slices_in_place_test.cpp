// Tests which operands and results of calls become stacks (graph/slices_in_place.h).
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

Tensor call(const Tensors& operands, bool takes_slices) {
  const Shape result = operands[0].shape();
  return custom_call({.kernel = "made/1", .target = "made", .results = {result}, .takes_slices = takes_slices},
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

TEST(SlicesInPlace, ResultsThatTheLoopStacks) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const Tensor y = call({c[0], x[0]}, true);
    return {{c[0] + x[1]}, {y, c[0]}};
  });
  // The call gets the stack that it reads, the stack that it writes, and the index.
  EXPECT_THAT(text, HasSubstr("slices = array<i64: 1, 0>, written_slices = array<i64: 0>"));
  EXPECT_THAT(text, HasSubstr("output_tuple_indices = [], operand_index = 2"));
  EXPECT_THAT(text, HasSubstr("(tensor<3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<i32>) -> tensor<4x3xf32>"));
  // Both stacks begin as unwritten memory. The one that no call writes is updated with the slice.
  EXPECT_THAT(text, HasSubstr("@fettle_unwritten_1(%arg3)"));
  EXPECT_THAT(text, HasSubstr("-> (tensor<4x3xf32>, tensor<4x3xf32>)"));
  EXPECT_THAT(text, HasSubstr("stablehlo.dynamic_update_slice"));
  EXPECT_THAT(text, Not(HasSubstr("stablehlo.constant dense<0.0")));
}

TEST(SlicesInPlace, ResultsThatOtherCallsReadWhereTheyAre) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const Tensor y = call({c[0], x[0]}, true);
    return {{call({c[0], reshape(y, {3, 1})}, true)}, {y}};
  });
  EXPECT_THAT(text, HasSubstr("{slices = array<i64: 1, 0>}"));
  EXPECT_THAT(text, HasSubstr("(tensor<3xf32>, tensor<4x3x1xf32>, tensor<i32>)"));
  EXPECT_THAT(text, Not(HasSubstr("stablehlo.dynamic_slice")));
  EXPECT_THAT(text, Not(HasSubstr("stablehlo.dynamic_update_slice")));
}

TEST(SlicesInPlace, ResultsAreCutOutForOtherOps) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const Tensor y = call({c[0], x[0]}, true);
    return {{y + c[0]}, {y}};
  });
  EXPECT_THAT(text, HasSubstr("written_slices = array<i64: 0>"));
  EXPECT_THAT(text, HasSubstr("stablehlo.dynamic_slice"));
}

TEST(SlicesInPlace, AResultIsWrittenToOneStackOnly) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const Tensor y = call({c[0], x[0]}, true);
    return {{c[0]}, {y, reshape(y, {1, 3})}};
  });
  EXPECT_THAT(text, HasSubstr("written_slices = array<i64: 0>"));
  EXPECT_THAT(text, HasSubstr("stablehlo.dynamic_update_slice"));
}

TEST(SlicesInPlace, ResultsOfCallsThatCannotWriteSlicesStayWhole) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    return {{c[0]}, {call({c[0], x[0]}, false)}};
  });
  EXPECT_THAT(text, Not(HasSubstr("written_slices")));
  EXPECT_THAT(text, Not(HasSubstr("fettle_unwritten")));
}

// A compiler cannot move the call out of the outer loop.
TEST(SlicesInPlace, UnwrittenMemoryOfAnInnerLoopDependsOnTheOuterTrip) {
  const std::string text = text_of([](const Tensor&, const Tensors& c, const Tensors& x) -> ScanStep {
    const ScanStep inner = scan(3, {}, {x[0]}, [&](const Tensor&, const Tensors&, const Tensors& part) -> ScanStep {
      return {{}, {call({reshape(part[0], {1}), x[1]}, true)}};
    });
    return {{c[0] + reshape(inner.ys[0], {3})}, {}};
  });
  EXPECT_THAT(text,
              testing::ContainsRegex("@fettle_unwritten_1\\(%[0-9]+\\) [^\n]*: \\(tensor<i32>\\) -> tensor<3x1xf32>"));
}

// A loop that may end early leaves zeros in the slices that it does not reach.
TEST(SlicesInPlace, StacksOfALimitedLoopBeginAsZeros) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {kTrips, 3}}), start = program.input("start", {DType::kF32, {3}});
  const Tensor limit = program.input("limit", {DType::kI32, {}});
  const ScanStep out = scan(kTrips, {start}, {x},
                            [](const Tensor&, const Tensors& c, const Tensors& slices) -> ScanStep {
                              return {c, {call({c[0], slices[0]}, true)}};
                            },
                            {.limit = limit});
  program.output("stack", out.ys[0]);
  const std::string text = program.text();
  EXPECT_THAT(text, HasSubstr("written_slices = array<i64: 0>"));
  EXPECT_THAT(text, HasSubstr("stablehlo.constant dense<0.0"));
  EXPECT_THAT(text, Not(HasSubstr("fettle_unwritten")));
}

}  // namespace
}  // namespace fettle
