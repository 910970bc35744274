// Tests that pruning leaves no dead node, carry, slice or captured value, also in loops.
#include <gtest/gtest.h>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/prune.h"
#include "graph/scan.h"
#include "graph_run.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

int64_t count(const Block& block, Op op) {
  int64_t n = 0;
  for (int32_t id = 0; id < block.size(); ++id) {
    n += block.node(id).op == op;
    if (const Loop* loop = block.node(id).loop()) n += count(*loop->body, op);
  }
  return n;
}

// Returns the scans of a block in order; an inner scan follows the scan that contains it.
std::vector<const Node*> scans(const Block& block) {
  std::vector<const Node*> out;
  for (int32_t id = 0; id < block.size(); ++id) {
    const Loop* loop = block.node(id).loop();
    if (loop == nullptr) continue;
    out.push_back(&block.node(id));
    for (const Node* inner : scans(*loop->body)) out.push_back(inner);
  }
  return out;
}

TEST(Prune, InputsStayAndDeadNodesGo) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2}});
  program.input("unused", {DType::kF32, {2}});
  exp(sine(x));
  program.output("y", x * x);
  const std::shared_ptr<Block> pruned = prune(program.block());
  EXPECT_EQ(pruned->inputs.size(), 2u);
  EXPECT_EQ(pruned->size(), 3) << "two inputs and one multiplication";
}

TEST(Prune, GradientMarkersAreRemoved) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {}});
  program.output("y", custom_gradient(stop_gradient(x), {x}, {exp(x)}));
  EXPECT_EQ(prune(program.block())->size(), 1) << "the gradient's exp is not needed for the value";
}

TEST(Prune, DeadCarriesSlicesStacksAndCapturesOfALoop) {
  Program program;
  BuildScope scope(program.block());
  const Shape v{DType::kF32, {3}};
  const Tensor a = program.input("a", v), b = program.input("b", v), dead = program.input("dead", v);
  const Tensor xs = program.input("xs", {DType::kF32, {4, 3}}),
               dead_xs = program.input("dead_xs", {DType::kF32, {4, 3}});
  const ScanStep out =
      scan(4, {a, dead, b}, {xs, dead_xs}, [&](const Tensor&, const Tensors& c, const Tensors& s) -> ScanStep {
        // Only carry 1 itself reads carry 1. Carry 0 reads carry 2, so carry 2 is live although its final value is not
        // read.
        return {{c[0] + c[2] * s[0], exp(c[1]) * dead + s[1], sine(c[2])}, {s[1] * dead, c[0]}};
      });
  program.output("carry", out.carries[0]);
  program.output("stack", out.ys[1]);
  const std::shared_ptr<Block> pruned = prune(program.block());
  ASSERT_EQ(scans(*pruned).size(), 1u);
  const Node& loop = *scans(*pruned)[0];
  EXPECT_EQ(loop.loop()->carries, 2);
  EXPECT_EQ(loop.loop()->xs, 1);
  EXPECT_EQ(loop.operands.size(), 3u) << "nothing captured";
  EXPECT_EQ(loop.results.size(), 3u) << "two carries and one stack";
  EXPECT_EQ(count(*pruned, Op::kExponential), 0);
  EXPECT_EQ(count(*pruned, Op::kSine), 1);
}

TEST(Prune, CapturesThroughTwoLoopsAreDroppedFromBoth) {
  Program program;
  BuildScope scope(program.block());
  const Shape v{DType::kF32, {3}};
  const Tensor x = program.input("x", v), used = program.input("used", v), dead = program.input("dead", v);
  const ScanStep out = scan(2, {x}, {}, [&](const Tensor&, const Tensors& c, const Tensors&) -> ScanStep {
    const ScanStep inner = scan(3, {c[0]}, {}, [&](const Tensor&, const Tensors& d, const Tensors&) -> ScanStep {
      return {{d[0] * used}, {d[0] * dead}};
    });
    return {{inner.carries[0]}, {inner.ys[0]}};
  });
  program.output("y", out.carries[0]);
  const std::shared_ptr<Block> pruned = prune(program.block());
  for (const Node* loop : scans(*pruned)) EXPECT_EQ(loop->operands.size(), 2u) << "the carry and one capture";
  EXPECT_EQ(scans(*pruned).size(), 2u);
}

// Only the gradient of `trained`, the slices of the scan, is requested. So the reverse loop has no carry that sums a
// gradient of the captured weight `frozen`. Full rematerialisation, the default, saves only the carry of the forward
// loop, which is one stack.
TEST(Prune, AReverseLoopKeepsOnlyWhatTheGradientReads) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {3}}), frozen = program.input("frozen", {DType::kF32, {3, 3}});
  const Tensor trained = program.input("trained", {DType::kF32, {5, 3}});
  const ScanStep out = scan(5, {x}, {trained}, [&](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
    return {{tanh(dot_general(c[0] * xs[0], frozen, {.lhs_contracting = {0}, .rhs_contracting = {0}}))}, {}};
  });
  program.output("grad", grad(reduce_sum(out.carries[0], {0}), {trained})[0]);
  const std::shared_ptr<Block> pruned = prune(program.block());
  const std::vector<const Node*> loops = scans(*pruned);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(loops[0]->results.size(), 2u) << "the carry and its saved stack";
  EXPECT_EQ(loops[1]->loop()->carries, 1) << "the carry's cotangent; no sum for the frozen weight";
  EXPECT_EQ(loops[1]->results.size(), 2u);
  EXPECT_EQ(count(*loops[1]->loop()->body, Op::kDotGeneral), 2) << "one computed again, one of the gradient";
}

TEST(Prune, SavedDotsAreNotComputedAgain) {
  auto dots = [](Remat remat) {
    Program program;
    BuildScope scope(program.block());
    const Tensor x = program.input("x", {DType::kF32, {3}}), w = program.input("w", {DType::kF32, {5, 3, 3}});
    const ScanStep out =
        scan(5, {x}, {w},
             [&](const Tensor&, const Tensors& c, const Tensors& xs) -> ScanStep {
               return {{exp(sine(dot_general(c[0], xs[0], {.lhs_contracting = {0}, .rhs_contracting = {0}})))}, {}};
             },
             {.remat = remat});
    program.output("grad", grad(reduce_sum(out.carries[0], {0}), {w})[0]);
    const std::shared_ptr<Block> pruned = prune(program.block());
    const std::vector<const Node*> loops = scans(*pruned);
    const Block& reverse = *loops[1]->loop()->body;
    return std::vector<int64_t>{count(reverse, Op::kDotGeneral), count(reverse, Op::kExponential),
                                count(reverse, Op::kSine)};
  };
  EXPECT_EQ(dots(Remat::kFull), (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ(dots(Remat::kDots), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(dots(Remat::kNone), (std::vector<int64_t>{2, 0, 0}));
}

}  // namespace
}  // namespace fettle
