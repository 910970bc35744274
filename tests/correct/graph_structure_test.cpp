// Defines the forward cases of the ops that move values, contract dims or structure the program. The expected values
// are written by hand or computed by plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/custom_call.h"
#include "graph/float8.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "graph_cases.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;
using Values = std::vector<double>;
using Tensors = std::vector<Tensor>;

const Value kTwoByThree = f32({2, 3}, {1, 2, 3, 4, 5, 6});

void add_values(std::vector<ForwardCase>& list) {
  list.push_back(
      {Op::kParameter, "as it came", {f32({2}, {3, 4})}, [](const Tensors& a) -> Tensors { return a; }, {{3, 4}}});
  list.push_back({Op::kConstant,
                  "splat and table",
                  {},
                  [](const Tensors&) -> Tensors {
                    return {full(1.5, {DType::kF32, {2}}), literal({1, 2, 3, 4, 5, 6}, {DType::kI32, {3, 2}})};
                  },
                  {{1.5, 1.5}, {1, 2, 3, 4, 5, 6}}});
  list.push_back({Op::kIota,
                  "each dim",
                  {},
                  [](const Tensors&) -> Tensors {
                    return {iota({DType::kI32, {2, 3}}, 0), iota({DType::kF32, {2, 3}}, 1)};
                  },
                  {{0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}}});
}

void add_shape(std::vector<ForwardCase>& list) {
  auto add = [&list](Op op, const char* name, std::vector<Value> arguments, Tensor (*build)(const Tensors&),
                     Values wanted) {
    list.push_back(
        {op, name, std::move(arguments), [build](const Tensors& a) -> Tensors { return {build(a)}; }, {wanted}});
  };
  add(Op::kBroadcastInDim, "dims out of order, one of size 1", {f32({2, 1}, {1, 2})},
      [](const Tensors& a) {
        return broadcast_in_dim(a[0], {3, 2}, {1, 0});
      },
      {1, 2, 1, 2, 1, 2});
  add(Op::kConcatenate, "last dim", {kTwoByThree, f32({2, 1}, {7, 8})},
      [](const Tensors& a) { return concatenate(a, -1); }, {1, 2, 3, 7, 4, 5, 6, 8});
  add(Op::kDynamicSlice, "a start too large is clamped", {kTwoByThree, i32({}, {0}), i32({}, {9})},
      [](const Tensors& a) {
        return dynamic_slice(a[0], {a[1], a[2]}, {2, 2});
      },
      {2, 3, 5, 6});
  add(Op::kDynamicUpdateSlice, "a start too small is clamped",
      {kTwoByThree, f32({1, 2}, {-1, -2}), i32({}, {1}), i32({}, {-4})},
      [](const Tensors& a) {
        return dynamic_update_slice(a[0], a[1], {a[2], a[3]});
      },
      {1, 2, 3, -1, -2, 6});
  add(Op::kPad, "with a value", {f32({2}, {1, 2})}, [](const Tensors& a) { return pad(a[0], {1}, {2}, -5); },
      {-5, 1, 2, -5, -5});
  add(Op::kPad, "between, and negative", {f32({3}, {1, 2, 3})},
      [](const Tensors& a) {
        return make_node(Op::kPad, {a[0], constant(0, DType::kF32)},
                         Padding{.low = {-1}, .high = {1}, .interior = {1}});
      },
      {0, 2, 0, 3, 0});
  add(Op::kReshape, "one dim inferred", {kTwoByThree},
      [](const Tensors& a) {
        return reshape(a[0], {3, -1});
      },
      {1, 2, 3, 4, 5, 6});
  add(Op::kReshape, "a new dim at the end", {kTwoByThree}, [](const Tensors& a) { return expand(a[0], -1); },
      {1, 2, 3, 4, 5, 6});
  add(Op::kSlice, "every second", {f32({5}, {1, 2, 3, 4, 5})}, [](const Tensors& a) { return slice(a[0], 0, 1, 5, 2); },
      {2, 4});
  add(Op::kTranspose, "three dims", {f32({1, 2, 3}, {1, 2, 3, 4, 5, 6})},
      [](const Tensors& a) {
        return transpose(a[0], {2, 0, 1});
      },
      {1, 4, 2, 5, 3, 6});
  for (const auto& [kind, wanted] : {std::pair<ReduceKind, Values>{ReduceKind::kAdd, {5, 7, 9}},
                                     {ReduceKind::kMaximum, {4, 5, 6}},
                                     {ReduceKind::kMinimum, {1, 2, 3}}})
    list.push_back({Op::kReduce,
                    "kind " + std::to_string(static_cast<int>(kind)),
                    {kTwoByThree},
                    [kind = kind](const Tensors& a) -> Tensors {
                      return {make_node(Op::kReduce, {a[0]}, Reduction{kind, {0}})};
                    },
                    {wanted}});
  add(Op::kReduce, "several dims, from the end", {f32({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
      [](const Tensors& a) {
        return reduce_sum(a[0], {-1, 0});
      },
      {1 + 2 + 5 + 6, 3 + 4 + 7 + 8});
  add(Op::kReduce, "and", {pred({2, 2}, {1, 1, 1, 0})}, [](const Tensors& a) { return reduce_and(a[0], {1}); }, {1, 0});
  add(Op::kReduce, "or", {pred({2, 2}, {0, 1, 0, 0})},
      [](const Tensors& a) {
        return make_node(Op::kReduce, {a[0]}, Reduction{ReduceKind::kOr, {1}});
      },
      {1, 0});
  add(Op::kReduce, "largest of bf16, all below zero", {bf16({3}, {-3, -2, -5})},
      [](const Tensors& a) { return reduce_max(a[0], {0}); }, {-2});
  add(Op::kReduce, "sum of i32", {i32({3}, {1, -2, 5})}, [](const Tensors& a) { return reduce_sum(a[0], {0}); }, {4});
  add(Op::kTake, "ids of two dims, one too large", {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i32({2, 2}, {2, 0, 1, 7})},
      [](const Tensors& a) { return take(a[0], a[1]); }, {5, 6, 1, 2, 3, 4, 5, 6});
  add(Op::kTakeTranspose, "rows of equal ids add up", {f32({3, 2}, {1, 2, 3, 4, 10, 20}), i32({3}, {2, 0, 2})},
      [](const Tensors& a) { return make_node(Op::kTakeTranspose, a, ResultDims{{4}}); }, {3, 4, 0, 0, 11, 22, 0, 0});
  add(Op::kTake, "a table of each batch", {f32({2, 2, 1}, {1, 2, 3, 4}), i32({2, 3}, {0, 1, 1, 1, 0, 9})},
      [](const Tensors& a) { return take(a[0], a[1]); }, {1, 2, 2, 4, 3, 4});
  add(Op::kTakeTranspose, "onto a table of each batch, ids outside left out",
      {f32({2, 2, 1}, {1, 2, 3, 4}), i32({2, 3}, {0, 0, 2, -1, 1, 0}), f32({2, 3, 1}, {10, 20, 30, 40, 50, 60})},
      [](const Tensors& a) { return add_rows(a[0], a[1], a[2]); }, {31, 2, 63, 54});
}

// Adds the product of x [2, 4, 3, 5] and y [5, 6, 2, 4]. The dim of size 2 is a batch dim. The dims of sizes 4 and 5
// are contracted. Plain loops compute the expected values.
void add_dot(std::vector<ForwardCase>& list) {
  const Value x = random_integers({DType::kF32, {2, 4, 3, 5}}, 1, 3),
              y = random_integers({DType::kF32, {5, 6, 2, 4}}, 2, 3);
  Values wanted;
  for (int b = 0; b < 2; ++b)
    for (int m = 0; m < 3; ++m)
      for (int n = 0; n < 6; ++n) {
        double sum = 0;
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 5; ++j)
            sum += x.elements[((b * 4 + i) * 3 + m) * 5 + j] * y.elements[((j * 6 + n) * 2 + b) * 4 + i];
        wanted.push_back(sum);
      }
  const DotDims dims{.lhs_batching = {0}, .rhs_batching = {2}, .lhs_contracting = {3, 1}, .rhs_contracting = {0, 3}};
  list.push_back({Op::kDotGeneral,
                  "batched, two contracted dims",
                  {x, y},
                  [dims](const Tensors& a) -> Tensors { return {dot_general(a[0], a[1], dims)}; },
                  {wanted}});
  // The sum needs f32: in bf16, adding 2^-8 to 1 changes nothing.
  const Value small =
      bf16({1, 9}, {1, 0.00390625, 0.00390625, 0.00390625, 0.00390625, 0.00390625, 0.00390625, 0.00390625, 0.00390625});
  list.push_back({Op::kDotGeneral,
                  "bf16 accumulates in f32",
                  {small, bf16({9}, Values(9, 1))},
                  [](const Tensors& a) -> Tensors {
                    const DotDims inner{.lhs_contracting = {1}, .rhs_contracting = {0}};
                    return {dot_general(a[0], a[1], inner, DType::kF32), dot_general(a[0], a[1], inner)};
                  },
                  {{1.03125}, {1.03125}},
                  0});
}

ffi::Error scale_both(float factor, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> scaled,
                      ffi::ResultBuffer<ffi::F32> sum) {
  sum->typed_data()[0] = 0;
  for (size_t i = 0; i < x.element_count(); ++i) {
    scaled->typed_data()[i] = factor * x.typed_data()[i];
    sum->typed_data()[0] += x.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale_both_handler, scale_both,
                              ffi::Ffi::Bind()
                                  .Attr<float>("factor")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

void add_structure(std::vector<ForwardCase>& list) {
  const Value x = f32({3}, {1, 2, 3});
  register_ffi_handler<scale_both_handler>(cpu_devices().client().plugin(), "test_scale_both");
  list.push_back({Op::kCustomCall,
                  "attributes, two results",
                  {x},
                  [](const Tensors& a) -> Tensors {
                    return custom_call({.target = "test_scale_both",
                                        .attributes = {{"factor", 2.0f}},
                                        .results = {a[0].shape(), {DType::kF32, {}}}},
                                       {a[0]});
                  },
                  {{2, 4, 6}, {6}}});
  list.push_back({Op::kCollectivePermute,
                  "on one device",
                  {x},
                  [](const Tensors& a) -> Tensors { return {collective_permute(a[0], 0, {0}, {{{"sp"}}}) * 2.0}; },
                  {{2, 4, 6}}});
  list.push_back({Op::kCustomGradient,
                  "its value",
                  {x},
                  [](const Tensors& a) -> Tensors {
                    return {custom_gradient(reduce_sum(a[0] * a[0], {0}), {a[0]}, {a[0] * 100.0})};
                  },
                  {{14}}});
  list.push_back({Op::kFloat8Dot,
                  "of numbers that 8 bits hold",
                  {bf16({1, 3}, {1, 2, -3.5}), bf16({2, 3}, {4, 0, 1, 0.5, 16, 0})},
                  [](const Tensors& a) -> Tensors {
                    const DotDims dims{.lhs_contracting = {1}, .rhs_contracting = {1}};
                    return {float8_dot(a[0], a[1], dims, {})};
                  },
                  {{0.5, 32.5}}});
  list.push_back({Op::kOptimizationBarrier,
                  "as they came",
                  {x, i32({}, {4})},
                  [](const Tensors& a) -> Tensors { return optimization_barrier(a); },
                  {{1, 2, 3}, {4}}});
  list.push_back(
      {Op::kPlace,
       "there and back",
       {x},
       [](const Tensors& a) -> Tensors { return {place(place(a[0] + 1.0, Memory::kHost), Memory::kDevice) * 2.0}; },
       {{4, 6, 8}}});
  list.push_back({Op::kShardingConstraint,
                  "on one device",
                  {x},
                  [](const Tensors& a) -> Tensors { return {sharding_constraint(a[0], {{{"tp"}}})}; },
                  {{1, 2, 3}}});
  list.push_back({Op::kStopGradient,
                  "as it came",
                  {x},
                  [](const Tensors& a) -> Tensors { return {stop_gradient(a[0])}; },
                  {{1, 2, 3}}});
}

// The scan computes carry' = carry * 2 + x. Its stacked results are the carry before the step and the index. With
// `reverse`, the scan starts at the last x.
void add_scans(std::vector<ForwardCase>& list) {
  for (const bool reverse : {false, true}) {
    const Values xs{1, 2, 3, 4};
    double carry = 10;
    Values before(4);
    for (int trip = 0; trip < 4; ++trip) {
      const int at = reverse ? 3 - trip : trip;
      before[at] = carry;
      carry = carry * 2 + xs[at];
    }
    list.push_back({Op::kScan,
                    reverse ? "reverse" : "forward",
                    {f32({}, {10}), f32({4}, xs)},
                    [reverse](const Tensors& a) -> Tensors {
                      const ScanStep out =
                          scan(4, {a[0]}, {a[1]},
                               [](const Tensor& index, const Tensors& carries, const Tensors& slices) -> ScanStep {
                                 return {{carries[0] * 2.0 + slices[0]}, {carries[0], index}};
                               },
                               {.reverse = reverse});
                      return {out.carries[0], out.ys[0], out.ys[1]};
                    },
                    {{carry}, before, {0, 1, 2, 3}}});
  }
}

}  // namespace

std::vector<ForwardCase> structure_forward_cases() {
  std::vector<ForwardCase> list;
  add_values(list);
  add_shape(list);
  add_dot(list);
  add_structure(list);
  add_scans(list);
  return list;
}

}  // namespace fettle
