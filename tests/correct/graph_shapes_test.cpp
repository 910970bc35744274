// Defines calls that the shape rules and builders must refuse. Each has the label of the constraint that it breaks.
#include "graph/custom_call.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "graph_cases.h"

namespace fettle {
namespace {

Tensor of(DType dtype, Dims dims) {
  return Block::current().parameter({dtype, std::move(dims)});
}
Tensor f(Dims dims) {
  return of(DType::kF32, std::move(dims));
}
Tensor i(Dims dims) {
  return of(DType::kI32, std::move(dims));
}
Tensor p(Dims dims) {
  return of(DType::kPred, std::move(dims));
}

using List = std::vector<BadShapeCase>;
using Tensors = std::vector<Tensor>;

void add_values(List& list) {
  list.push_back({Op::kParameter, "parameter_c1", [] { f({2, -1}); }});
  list.push_back({Op::kConstant, "constant_c1", [] { literal({1, 2, 3}, {DType::kF32, {2}}); }});
  list.push_back({Op::kIota, "iota_c1", [] { iota({DType::kI32, {2, 3}}, 2); }});
  list.push_back({Op::kIota, "iota_c1", [] { iota({DType::kI32, {2, 3}}, -1); }});
}

void add_elementwise(List& list) {
  for (const Op op : {Op::kCosine, Op::kErf, Op::kExponential, Op::kFloor, Op::kIsFinite, Op::kLog, Op::kLogistic,
                      Op::kRsqrt, Op::kSine, Op::kSqrt, Op::kTanh}) {
    list.push_back({op, "unary_i1", [op] { make_node(op, {i({2})}); }});
    list.push_back({op, "unary_c1", [op] { make_node(op, {f({2}), f({2})}); }});
  }
  for (const Op op : {Op::kAbs, Op::kNegate, Op::kSign})
    list.push_back({op, "unary_i1", [op] { make_node(op, {p({2})}); }});
  list.push_back({Op::kNot, "not_i1", [] { logical_not(f({2})); }});
  list.push_back({Op::kNot, "not_c1", [] { make_node(Op::kNot, {p({2}), p({2})}); }});
  for (const Op op : {Op::kAdd, Op::kDivide, Op::kMaximum, Op::kMinimum, Op::kMultiply, Op::kPower, Op::kRemainder,
                      Op::kSubtract, Op::kAnd, Op::kOr, Op::kXor, Op::kShiftLeft, Op::kShiftRightLogical}) {
    const bool bits =
        op == Op::kAnd || op == Op::kOr || op == Op::kXor || op == Op::kShiftLeft || op == Op::kShiftRightLogical;
    list.push_back({op, "binary_c1", [op] { make_node(op, {i({2}), i({3})}); }});
    list.push_back({op, "binary_c1", [op] { make_node(op, {i({2}), of(DType::kU32, {2})}); }});
    list.push_back({op, "binary_c1", [op] { make_node(op, {i({2})}); }});
    list.push_back({op, "binary_i1", [op, bits] {
                      make_node(op, bits ? std::vector{f({2}), f({2})} : std::vector{p({2}), p({2})});
                    }});
  }
  list.push_back({Op::kCompare, "compare_c1", [] { compare(f({2}), Direction::kEQ, i({2})); }});
  list.push_back({Op::kSelect, "select_c1", [] { select(f({2}), f({2}), f({2})); }});
  list.push_back({Op::kSelect, "select_c2", [] { select(p({2}), f({2}), i({2})); }});
  list.push_back({Op::kConvert, "convert_c1", [] {
                    make_node(Op::kConvert, {f({2}), f({2})}, ResultDtype{DType::kF32});
                  }});
  list.push_back({Op::kBitcastConvert, "bitcast_convert_c1", [] { bitcast_convert(f({2}), DType::kBF16); }});
}

void add_shape(List& list) {
  list.push_back({Op::kBroadcastInDim, "broadcast_in_dim_c2", [] { broadcast_in_dim(f({2}), {2, 3}, {0, 1}); }});
  list.push_back({Op::kBroadcastInDim, "broadcast_in_dim_c3_c4", [] { broadcast_in_dim(f({2}), {2, 3}, {2}); }});
  list.push_back({Op::kBroadcastInDim, "broadcast_in_dim_c3_c4", [] { broadcast_in_dim(f({2, 2}), {2, 2}, {1, 1}); }});
  list.push_back({Op::kBroadcastInDim, "broadcast_in_dim_c5", [] { broadcast_in_dim(f({2}), {2, 3}, {1}); }});
  list.push_back({Op::kConcatenate, "concatenate_c2", [] { concatenate({f({2, 3}), f({3, 3})}, 1); }});
  list.push_back({Op::kConcatenate, "concatenate_c2", [] { concatenate({f({2, 3}), f({2})}, 1); }});
  list.push_back({Op::kConcatenate, "concatenate_c3", [] { concatenate({}, 0); }});
  list.push_back({Op::kConcatenate, "concatenate_c4", [] { concatenate({f({2}), f({2})}, 1); }});
  list.push_back({Op::kDynamicSlice, "dynamic_slice_c2", [] { dynamic_slice(f({4, 4}), {i({})}, {2, 2}); }});
  list.push_back({Op::kDynamicSlice, "dynamic_slice_c3", [] { dynamic_slice(f({4}), {f({})}, {2}); }});
  list.push_back({Op::kDynamicSlice, "dynamic_slice_c4", [] { dynamic_slice(f({4}), {i({})}, {5}); }});
  list.push_back(
      {Op::kDynamicUpdateSlice, "dynamic_update_slice_c2", [] { dynamic_update_slice(f({4}), i({2}), {i({})}); }});
  list.push_back({Op::kDynamicUpdateSlice, "dynamic_update_slice_c3", [] {
                    dynamic_update_slice(f({4}), f({2, 1}), {i({})});
                  }});
  list.push_back(
      {Op::kDynamicUpdateSlice, "dynamic_update_slice_c4", [] { dynamic_update_slice(f({4}), f({2}), {}); }});
  list.push_back(
      {Op::kDynamicUpdateSlice, "dynamic_update_slice_c5", [] { dynamic_update_slice(f({4}), f({2}), {i({1})}); }});
  list.push_back(
      {Op::kDynamicUpdateSlice, "dynamic_update_slice_c6", [] { dynamic_update_slice(f({4}), f({5}), {i({})}); }});
  list.push_back({Op::kPad, "pad_c1", [] {
                    make_node(Op::kPad, {f({2}), i({})}, Padding{.low = {0}, .high = {0}, .interior = {0}});
                  }});
  list.push_back({Op::kPad, "pad_c2", [] { pad(f({2, 2}), {0}, {0}); }});
  list.push_back({Op::kPad, "pad_c3", [] {
                    make_node(Op::kPad, {f({2}), f({})}, Padding{.low = {0}, .high = {0}, .interior = {-1}});
                  }});
  list.push_back({Op::kPad, "pad_c4", [] { pad(f({2}), {-2}, {-1}); }});
  list.push_back({Op::kReshape, "reshape_c2", [] { reshape(f({2, 3}), {4}); }});
  list.push_back({Op::kReshape, "reshape_c2", [] { reshape(f({2, 3}), {4, -1}); }});
  list.push_back({Op::kSlice, "slice_c2",
                  [] { make_node(Op::kSlice, {f({4})}, SliceRange{.start = {}, .limit = {1}, .strides = {1}}); }});
  list.push_back({Op::kSlice, "slice_c3", [] { slice(f({4}), 0, 2, 5); }});
  list.push_back({Op::kSlice, "slice_c3", [] { slice(f({4}), 0, 3, 2); }});
  list.push_back({Op::kSlice, "slice_c4", [] { slice(f({4}), 0, 0, 4, 0); }});
  list.push_back({Op::kTranspose, "transpose_c2", [] { transpose(f({2, 3}), {1, 1}); }});
  list.push_back({Op::kTranspose, "transpose_c2", [] { transpose(f({2, 3}), {0}); }});
  list.push_back({Op::kReduce, "reduce_c4_c5", [] { reduce_sum(f({2, 3}), {2}); }});
  list.push_back({Op::kReduce, "reduce_c4_c5", [] { reduce_sum(f({2, 3}), {0, 0}); }});
  list.push_back({Op::kReduce, "reduce_i1", [] { reduce_and(f({2}), {0}); }});
  list.push_back({Op::kReduce, "reduce_i1", [] { reduce_sum(p({2}), {0}); }});
  list.push_back({Op::kReduce, "reduce_i1", [] { reduce_max(i({2}), {0}); }});
  list.push_back({Op::kTake, "gather_c1", [] { take(f({3}), i({2})); }});
  list.push_back({Op::kTake, "gather_c1", [] { take(f({2, 4, 3}), i({3, 2})); }});
  list.push_back({Op::kTakeTranspose, "scatter_c6", [] {
                    make_node(Op::kTakeTranspose, {f({2, 3}), i({2}), f({5, 3})}, ResultDims{{4}});
                  }});
  list.push_back({Op::kTake, "gather_i2", [] { take(f({3, 2}), f({2})); }});
  list.push_back({Op::kTakeTranspose, "scatter_i2", [] {
                    make_node(Op::kTakeTranspose, {f({2, 3}), f({2})}, ResultDims{{4}});
                  }});
  list.push_back({Op::kTakeTranspose, "scatter_c4", [] {
                    make_node(Op::kTakeTranspose, {f({2, 3}), i({3})}, ResultDims{{4}});
                  }});
}

void add_dot(List& list) {
  auto add = [&list](const char* label, Dims x, Dims y, DotDims dims) {
    list.push_back({Op::kDotGeneral, label, [x, y, dims] { dot_general(f(x), f(y), dims); }});
  };
  add("dot_general_c1", {2, 3}, {2, 3}, {.lhs_batching = {0}});
  add("dot_general_c2", {2, 3}, {2, 3}, {.lhs_contracting = {0}});
  add("dot_general_c3_c5", {2, 3}, {2, 3},
      {.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {0}, .rhs_contracting = {1}});
  add("dot_general_c3_c5", {2, 3}, {2, 3}, {.lhs_contracting = {2}, .rhs_contracting = {1}});
  add("dot_general_c4_c7", {2, 3}, {2, 3}, {.lhs_contracting = {1}, .rhs_contracting = {-1}});
  add("dot_general_c9", {2, 3}, {4, 3},
      {.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {1}, .rhs_contracting = {1}});
  add("dot_general_c10", {2, 3}, {2, 4}, {.lhs_contracting = {1}, .rhs_contracting = {1}});
  list.push_back({Op::kDotGeneral, "dot_general_c13", [] {
                    dot_general(f({3}), of(DType::kBF16, {3}), {.lhs_contracting = {0}, .rhs_contracting = {0}});
                  }});
}

void add_structure(List& list) {
  list.push_back({Op::kCustomCall, "custom_call_i1", [] {
                    custom_call({.target = "handler", .results = {{DType::kF32, {}}}}, {Tensor{}});
                  }});
  list.push_back({Op::kCustomCall, "custom_call_i2", [] { custom_call({.results = {{DType::kF32, {}}}}, {f({2})}); }});
  list.push_back({Op::kCustomCall, "custom_call_i3", [] {
                    custom_call({.target = "handler", .results = {{DType::kF32, {}}}, .in = {{}, {}}}, {f({2})});
                  }});
  list.push_back(
      {Op::kCustomCall, "custom_call_i4", [] {
         custom_call({.target = "handler", .results = {{DType::kF32, {}}}, .in = {{{{"tp"}, {"tp"}}}}}, {f({2})});
       }});
  const auto permute = [](std::vector<int64_t> sources, Partition split) {
    return [sources = std::move(sources), split = std::move(split)] { collective_permute(f({4}), 0, sources, split); };
  };
  list.push_back({Op::kCollectivePermute, "collective_permute_i1", permute({0}, {{{}}})});
  list.push_back({Op::kCollectivePermute, "collective_permute_c3", permute({0, 0}, {{{"sp"}}})});
  list.push_back({Op::kCollectivePermute, "collective_permute_c3", permute({2, 0}, {{{"sp"}}})});
  list.push_back({Op::kCollectivePermute, "collective_permute_c5", permute({1, 0}, {{{"sp"}}})});
  list.push_back({Op::kCustomGradient, "custom_gradient_c1", [] { custom_gradient(f({2}), {}, Tensors{}); }});
  list.push_back({Op::kCustomGradient, "custom_gradient_c1", [] { custom_gradient(f({}), {f({2})}, Tensors{}); }});
  list.push_back(
      {Op::kCustomGradient, "custom_gradient_c2", [] { custom_gradient(f({}), {f({2})}, Tensors{f({3})}); }});
  list.push_back({Op::kOptimizationBarrier, "identity_c1", [] { optimization_barrier({}); }});
  list.push_back({Op::kFloat8Dot, "float8_dot_c1", [] {
                    make_node(Op::kFloat8Dot, {f({2}), f({3})}, Float8Product{});
                  }});
  list.push_back({Op::kFloat8Dot, "float8_dot_c2", [] {
                    make_node(Op::kFloat8Dot, {f({2}), f({3}), f({3})},
                              Float8Product{{.lhs_contracting = {0}, .rhs_contracting = {0}}, {}});
                  }});
  list.push_back({Op::kStopGradient, "identity_c1", [] { make_node(Op::kStopGradient, {}); }});
  list.push_back({Op::kPlace, "place_c1", [] { place(f({2}), Memory::kHost, {}, f({2})); }});
  list.push_back({Op::kShardingConstraint, "sharding_c1", [] { sharding_constraint(f({2, 3}), {{{"tp"}}}); }});

  const ScanBody same = [](const Tensor&, const auto& carries, const auto&) -> ScanStep { return {carries, {}}; };
  list.push_back({Op::kScan, "while_i1", [same] { scan(4, {f({2})}, {f({3, 2})}, same); }});
  list.push_back({Op::kScan, "while_i1", [same] { scan(4, {f({2})}, {f({})}, same); }});
  list.push_back({Op::kScan, "while_c2", [] {
                    scan(4, {f({2})}, {}, [](const Tensor&, const auto&, const auto&) -> ScanStep { return {{}, {}}; });
                  }});
  list.push_back({Op::kScan, "while_c2", [] {
                    scan(4, {f({2})}, {}, [](const Tensor&, const auto& carries, const auto&) -> ScanStep {
                      return {{convert(carries[0], DType::kBF16)}, {}};
                    });
                  }});
}

}  // namespace

std::vector<BadShapeCase> bad_shape_cases() {
  List list;
  add_values(list);
  add_elementwise(list);
  add_shape(list);
  add_dot(list);
  add_structure(list);
  return list;
}

}  // namespace fettle
