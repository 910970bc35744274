// Defines nodes with known FLOPs and needed operands, for the rows of the op table that state them.
#include "graph/custom_call.h"
#include "graph/float8.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "graph_cases.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

Tensor f(Dims dims) {
  return Block::current().parameter({DType::kF32, std::move(dims)});
}

Tensor matrices() {
  return dot_general(full(1, {DType::kF32, {2, 3, 4}}), full(1, {DType::kF32, {4, 5}}),
                     {.lhs_contracting = {2}, .rhs_contracting = {0}});
}

// A loop with carries a, b, c, slices of xs and dead_xs, and captured values w and dead. Only carry 1 itself reads
// carry 1; carry 0 reads carry 2. The results are three carries, a stack of `dead` times a slice, and a stack of carry
// 0.
Tensor loop() {
  const Tensor a = f({3}), b = f({3}), c = f({3}), xs = f({4, 3}), dead_xs = f({4, 3}), w = f({3}), dead = f({3});
  return scan(4, {a, b, c}, {xs, dead_xs},
              [&](const Tensor&, const Tensors& carries, const Tensors& slices) -> ScanStep {
                return {{carries[0] * w + carries[2] * slices[0], exp(carries[1]), sine(carries[2])},
                        {slices[1] * dead, carries[0]}};
              })
      .carries[0];
}

}  // namespace

std::vector<FlopsCase> flops_cases() {
  return {
      {Op::kDotGeneral, matrices, 2 * 2 * 3 * 5 * 4},
      {Op::kDotGeneral,
       [] {
         return dot_general(f({7, 2, 3}), f({3, 7, 5}),
                            {.lhs_batching = {0}, .rhs_batching = {1}, .lhs_contracting = {2}, .rhs_contracting = {0}});
       },
       2 * 7 * 2 * 5 * 3},
      {Op::kScan,
       [] {
         return scan(6, {}, {},
                     [](const Tensor&, const Tensors&, const Tensors&) -> ScanStep {
                       return {{}, {matrices() + matrices()}};
                     })
             .ys[0];
       },
       6 * 2 * (2 * 2 * 3 * 5 * 4)},
      {Op::kCustomCall,
       [] {
         return custom_call({.target = "handler", .results = {{DType::kF32, {}}}, .cost = {.flops = 77}}, {f({2})})[0];
       },
       77},
  };
}

std::vector<LivenessCase> liveness_cases() {
  return {
      {Op::kCustomGradient,
       "the gradient's operands are not needed",
       [] {
         const Tensor x = f({2});
         return custom_gradient(reduce_sum(x, {0}), {x}, {exp(x)});
       },
       {true},
       {true, false, false}},
      {Op::kFloat8Dot,
       "nor are the factors",
       [] {
         return float8_dot(f({2, 3}), f({3, 4}), {.lhs_contracting = {1}, .rhs_contracting = {0}}, {});
       },
       {true},
       {true, false, false}},
      {Op::kPlace,
       "nor is the sum of squares",
       [] { return place(f({2}), Memory::kHost, {}, f({})); },
       {true},
       {true, false}},
      {Op::kStopGradient, "its value", [] { return stop_gradient(f({2})); }, {true}, {true}},
      {Op::kScan,
       "a carry needs the carries that feed it",
       loop,
       {true, false, false, false, false},
       {true, false, true, true, false, true, false}},
      {Op::kScan,
       "a carry that feeds itself alone",
       loop,
       {false, true, false, false, false},
       {false, true, false, false, false, false, false}},
      {Op::kScan,
       "a stack of slices",
       loop,
       {false, false, false, true, false},
       {false, false, false, false, true, false, true}},
      {Op::kScan,
       "a stack of a carry",
       loop,
       {false, false, false, false, true},
       {true, false, true, true, false, true, false}},
  };
}

}  // namespace fettle
