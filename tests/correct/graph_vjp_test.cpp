// Defines the functions whose VJPs are compared with finite differences. They use f64, so that the difference is
// precise, or small whole numbers in narrower float dtypes, so that the arithmetic is exact.
#include <gtest/gtest.h>

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
using Tensors = std::vector<Tensor>;

Value any(Dims dims, uint32_t seed = 1) {
  return random_value({DType::kF64, std::move(dims)}, seed, -2, 2);
}
Value positive(Dims dims, uint32_t seed = 1) {
  return random_value({DType::kF64, std::move(dims)}, seed, 0.3, 3);
}

class Cases {
 public:
  void add(Op op, std::string name, std::vector<Value> arguments, std::function<Tensor(const Tensors&)> build,
           double h = 1e-5, double tolerance = 1e-6) {
    list.push_back({op, std::move(name), std::move(arguments),
                    [build](const Tensors& a) -> Tensors { return {build(a)}; }, h, tolerance});
  }
  void unary(Op op, Tensor (*build)(const Tensor&), const Value& x) {
    add(op, "f64", {x}, [build](const Tensors& a) { return build(a[0]); });
  }
  void binary(Op op, Tensor (*build)(const Tensor&, const Tensor&), const Value& x, const Value& y) {
    add(op, "both", {x, y}, [build](const Tensors& a) { return build(a[0], a[1]); });
    add(op, "with itself", {x}, [build](const Tensors& a) { return build(a[0], a[0] * 0.5 + 0.7); });
    add(op, "first", {x}, [build, y](const Tensors& a) { return build(a[0], literal(y.elements, y.shape)); });
    add(op, "second", {y}, [build, x](const Tensors& a) { return build(literal(x.elements, x.shape), a[0]); });
  }
  std::vector<VjpCase> list;
};

void add_elementwise(Cases& c) {
  c.unary(Op::kAbs, abs, any({5}));
  c.unary(Op::kCosine, cosine, any({5}));
  c.unary(Op::kErf, erf, any({5}));
  c.unary(Op::kExponential, exp, any({5}));
  c.unary(Op::kLog, log, positive({5}));
  c.unary(Op::kLogistic, logistic, any({5}));
  c.unary(Op::kNegate, operator-, any({5}));
  c.unary(Op::kRsqrt, rsqrt, positive({5}));
  c.unary(Op::kSine, sine, any({5}));
  c.unary(Op::kSqrt, sqrt, positive({5}));
  c.unary(Op::kTanh, tanh, any({5}));
  c.binary(Op::kAdd, operator+, any({5}), any({5}, 2));
  c.binary(Op::kSubtract, operator-, any({5}), any({5}, 2));
  c.binary(Op::kMultiply, operator*, any({5}), any({5}, 2));
  c.binary(Op::kDivide, operator/, any({5}), positive({5}, 2));
  c.binary(Op::kMaximum, maximum, any({8}), any({8}, 2));
  c.binary(Op::kMinimum, minimum, any({8}), any({8}, 2));
  c.binary(Op::kPower, power, positive({5}), any({5}, 2));
  c.add(Op::kSelect, "both branches", {pred({4}, {1, 0, 0, 1}), any({4}), any({4}, 2)},
        [](const Tensors& a) { return select(a[0], a[1] * a[1], a[2] * a[2] * a[2]); });
  c.add(
      Op::kConvert, "f64 to f32, linear", {any({4})},
      [](const Tensors& a) { return convert(convert(a[0], DType::kF32), DType::kF64); }, 0.1, 1e-5);
  c.add(
      Op::kConvert, "bf16 to f32", {random_integers({DType::kBF16, {4}}, 1, 3)},
      [](const Tensors& a) {
        const Tensor x = convert(a[0], DType::kF32);
        return x * x;
      },
      1);
}

void add_shape(Cases& c) {
  c.add(Op::kBroadcastInDim, "dims out of order, one of size 1", {any({2, 1})}, [](const Tensors& a) {
    return broadcast_in_dim(a[0], {3, 2, 4}, {1, 0});
  });
  c.add(Op::kBroadcastInDim, "square, out of order", {any({3, 3})}, [](const Tensors& a) {
    return broadcast_in_dim(a[0], {3, 2, 3}, {2, 0});
  });
  c.add(Op::kBroadcastInDim, "numpy, both stretch", {any({3, 1}), any({4}, 2)},
        [](const Tensors& a) { return a[0] * a[1]; });
  c.add(Op::kConcatenate, "three", {any({2, 1}), any({2, 3}, 2), any({2, 2}, 3)}, [](const Tensors& a) {
    return concatenate({a[0] * a[0], a[1], a[2]}, 1);
  });
  for (const double start : {1.0, 9.0})
    c.add(Op::kDynamicSlice, start == 1 ? "inside" : "clamped", {any({4, 3}), i32({}, {start})}, [](const Tensors& a) {
      return dynamic_slice(a[0] * a[0], {a[1], constant(1, DType::kI32)}, {2, 2});
    });
  for (const double start : {1.0, 9.0})
    c.add(Op::kDynamicUpdateSlice, start == 1 ? "inside" : "clamped", {any({4, 3}), any({2, 2}, 2), i32({}, {start})},
          [](const Tensors& a) {
            return dynamic_update_slice(a[0] * a[0], a[1] * a[1], {a[2], constant(1, DType::kI32)});
          });
  c.add(Op::kPad, "around", {any({2, 3})}, [](const Tensors& a) { return pad(a[0] * a[0], {1, 0}, {2, 1}, 3); });
  c.add(Op::kPad, "moved by one", {any({3, 2})}, [](const Tensors& a) { return pad(a[0] * a[0], {1, 0}, {-1, 0}); });
  c.add(Op::kPad, "between", {any({3})}, [](const Tensors& a) {
    return make_node(Op::kPad, {a[0] * a[0], constant(0, DType::kF64)},
                     Padding{.low = {1}, .high = {2}, .interior = {2}});
  });
  c.add(Op::kReshape, "flat", {any({2, 3})}, [](const Tensors& a) { return reshape(a[0] * a[0], {6}); });
  c.add(Op::kSlice, "strides that do not reach the end", {any({8})},
        [](const Tensors& a) { return slice(a[0] * a[0], 0, 1, 7, 3); });
  c.add(Op::kSlice, "the end", {any({8, 2})}, [](const Tensors& a) { return slice(a[0], 0, 5, 8); });
  c.add(Op::kTranspose, "three dims", {any({2, 3, 4})}, [](const Tensors& a) { return transpose(a[0], {2, 0, 1}); });
  for (const ReduceKind kind : {ReduceKind::kAdd, ReduceKind::kMaximum, ReduceKind::kMinimum})
    c.add(Op::kReduce, "kind " + std::to_string(static_cast<int>(kind)), {any({3, 4, 2})}, [kind](const Tensors& a) {
      return make_node(Op::kReduce, {a[0] * a[0]}, Reduction{kind, {0, 2}});
    });
  c.add(Op::kTake, "ids that repeat", {any({4, 3}), i32({2, 3}, {0, 3, 3, 1, 3, 0})},
        [](const Tensors& a) { return take(a[0] * a[0], a[1]); });
  c.add(Op::kTake, "batches", {any({2, 4, 3}), i32({2, 5}, {0, 3, 3, 1, 3, 0, 0, 0, 2, 9})},
        [](const Tensors& a) { return take(a[0] * a[0], a[1]); });
  c.add(Op::kTakeTranspose, "ids that repeat", {any({5, 2}), i32({5}, {0, 3, 3, 1, 3})}, [](const Tensors& a) {
    return make_node(Op::kTakeTranspose, {a[0] * a[0], a[1]}, ResultDims{{4}});
  });
  c.add(Op::kTakeTranspose, "onto a table, ids outside",
        {any({2, 3, 2}), any({2, 4, 2}), i32({2, 4}, {0, 2, 3, -1, 1, 1, 7, 0})},
        [](const Tensors& a) { return add_rows(a[0] * a[0], a[2], a[1] * a[1]); });
  c.add(Op::kTake, "ids that are clamped", {any({4, 3}), i32({3}, {-2, 9, 1})},
        [](const Tensors& a) { return take(a[0] * a[0], a[1]); });
}

void add_dot(Cases& c) {
  auto add = [&c](const char* name, Dims x, Dims y, DotDims dims) {
    c.add(Op::kDotGeneral, name, {any(std::move(x)), any(std::move(y), 2)},
          [dims](const Tensors& a) { return dot_general(a[0], a[1], dims); });
  };
  add("matrices", {3, 4}, {4, 5}, {.lhs_contracting = {1}, .rhs_contracting = {0}});
  add("by the rows", {2, 3, 4}, {5, 4}, {.lhs_contracting = {2}, .rhs_contracting = {1}});
  add("two batching, two contracted, all out of order", {2, 4, 3, 5, 7}, {5, 7, 2, 6, 4},
      {.lhs_batching = {4, 0}, .rhs_batching = {1, 2}, .lhs_contracting = {3, 1}, .rhs_contracting = {0, 4}});
  add("outer product", {3}, {4}, {});
  add("inner product", {6}, {6}, {.lhs_contracting = {0}, .rhs_contracting = {0}});
  c.add(Op::kDotGeneral, "with itself", {any({3, 3})},
        [](const Tensors& a) { return dot_general(a[0], a[0], {.lhs_contracting = {1}, .rhs_contracting = {1}}); });
  c.add(
      Op::kDotGeneral, "bf16 giving f32",
      {random_integers({DType::kBF16, {3, 4}}, 1, 2), random_integers({DType::kBF16, {4, 2}}, 2, 2)},
      [](const Tensors& a) {
        return dot_general(a[0], a[1], {.lhs_contracting = {1}, .rhs_contracting = {0}}, DType::kF32);
      },
      1);
}

ffi::Error square(ffi::Buffer<ffi::F64> x, ffi::ResultBuffer<ffi::F64> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(square_handler, square,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F64>>().Ret<ffi::Buffer<ffi::F64>>());

void add_structure(Cases& c) {
  register_ffi_handler<square_handler>(cpu_devices().client().plugin(), "test_square");
  c.add(Op::kCustomCall, "its own gradient", {any({4})}, [](const Tensors& a) {
    const auto gradient = [](const VjpArgs& args) -> Tensors { return {args.cotangents[0] * args.operands[0] * 2.0}; };
    return custom_call({.target = "test_square", .results = {a[0].shape()}, .gradient = gradient}, {a[0]})[0];
  });
  c.add(Op::kCollectivePermute, "on one device", {any({3})},
        [](const Tensors& a) { return collective_permute(a[0] * a[0], 0, {0}, {{{"sp"}}}); });
  c.add(Op::kCustomGradient, "a rule for two inputs", {any({4}), any({4}, 2)}, [](const Tensors& a) {
    const GradientRule rule{[](const VjpArgs& args) -> Tensors {
      return {{}, args.cotangents[0] * args.operands[2], args.cotangents[0] * args.operands[1]};
    }};
    return custom_gradient(stop_gradient(a[0] * a[1]), {a[0], a[1]}, rule) * a[0];
  });
  c.add(Op::kCustomGradient, "the true gradient", {any({4})}, [](const Tensors& a) {
    const Tensor cube = reduce_sum(a[0] * a[0] * a[0], {0});
    const Tensor value = custom_gradient(stop_gradient(cube), {a[0]}, {a[0] * a[0] * 3.0});
    return value * value;
  });
  // The numbers are small integers, which 8-bit floats represent exactly.
  c.list.push_back({Op::kFloat8Dot,
                    "of numbers that 8 bits hold",
                    {random_integers({DType::kBF16, {2, 3}}, 1, 2), random_integers({DType::kBF16, {3, 4}}, 2, 2)},
                    [](const Tensors& a) -> Tensors {
                      return {float8_dot(a[0], a[1], {.lhs_contracting = {1}, .rhs_contracting = {0}}, {})};
                    },
                    1});
  c.list.push_back({Op::kOptimizationBarrier, "two", {any({3}), any({2}, 2)}, [](const Tensors& a) -> Tensors {
                      const Tensors b = optimization_barrier({a[0] * a[0], a[1]});
                      return {b[0] * b[0], b[1] * b[1]};
                    }});
  c.list.push_back(
      {Op::kOptimizationBarrier, "one of them unused", {any({3}), any({2}, 2)}, [](const Tensors& a) -> Tensors {
         return {optimization_barrier({a[0] * a[0], a[1]})[0]};
       }});
  c.add(Op::kPlace, "there and back", {any({3})}, [](const Tensors& a) {
    const Tensor there = place(a[0] * a[0], Memory::kHost);
    const Tensor back = place(there, Memory::kDevice);
    return back * back;
  });
  c.add(Op::kShardingConstraint, "on one device", {any({3})},
        [](const Tensors& a) { return sharding_constraint(a[0] * a[0], {{{"tp"}}}); });
  // This loop has carries, slices, a captured value and stacked results. graph_scan_test.cpp tests the reverse loop.
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull})
    for (const bool reverse : {false, true})
      c.list.push_back({Op::kScan,
                        std::string("remat ") + std::to_string(static_cast<int>(remat)) + (reverse ? " reverse" : ""),
                        {any({3}), any({4, 3}, 2), any({3, 3}, 3)},
                        [remat, reverse](const Tensors& a) -> Tensors {
                          const ScanStep out =
                              scan(4, {a[0]}, {a[1]},
                                   [&](const Tensor&, const Tensors& carries, const Tensors& xs) -> ScanStep {
                                     const Tensor next = tanh(dot_general(
                                         carries[0] + xs[0], a[2], {.lhs_contracting = {0}, .rhs_contracting = {1}}));
                                     return {{next}, {next * xs[0]}};
                                   },
                                   {.reverse = reverse, .remat = remat});
                          return {out.carries[0], out.ys[0]};
                        }});
}

}  // namespace

std::vector<VjpCase> vjp_cases() {
  Cases cases;
  add_elementwise(cases);
  add_shape(cases);
  add_dot(cases);
  add_structure(cases);
  return cases.list;
}

}  // namespace fettle
