// Tests composites. A kernel that replaces a body gives the same values and gradients, alone, in loops with each
// rematerialisation policy, and on several devices. Without a kernel, the program is the same as without a composite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "graph/autodiff/grad.h"
#include "graph/composite.h"
#include "graph/ops.h"
#include "graph/prune.h"
#include "graph/scan.h"
#include "graph_run.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;
using testing::HasSubstr;
using Tensors = std::vector<Tensor>;
using F32 = ffi::Buffer<ffi::F32>;
using F32Result = ffi::ResultBuffer<ffi::F32>;

std::atomic<int> forward_calls, backward_calls;

// Two composites. "squared_relu" computes y = scale * max(x, 0)^2 for x [B, D]; its kernel saves max(x, 0) for the
// gradient. "weighted" computes y = x * w for x [B, D] and w [D]; the gradient of w is a sum over B, which may be split
// over devices.
ffi::Error squared_relu(float scale, F32 x, F32Result y, F32Result relu) {
  ++forward_calls;
  for (size_t i = 0; i < x.element_count(); ++i) {
    const float r = std::max(x.typed_data()[i], 0.0f);
    relu->typed_data()[i] = r;
    y->typed_data()[i] = scale * r * r;
  }
  return ffi::Error::Success();
}
ffi::Error squared_relu_grad(float scale, F32 relu, F32 dy, F32Result dx) {
  ++backward_calls;
  for (size_t i = 0; i < relu.element_count(); ++i)
    dx->typed_data()[i] = 2 * scale * relu.typed_data()[i] * dy.typed_data()[i];
  return ffi::Error::Success();
}
ffi::Error weighted(F32 x, F32 w, F32Result y) {
  const size_t columns = w.element_count();
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] * w.typed_data()[i % columns];
  return ffi::Error::Success();
}
ffi::Error weighted_grad(F32 x, F32 w, F32 dy, F32Result dx, F32Result dw) {
  const size_t columns = w.element_count();
  std::fill_n(dw->typed_data(), columns, 0.0f);
  for (size_t i = 0; i < x.element_count(); ++i) {
    dx->typed_data()[i] = dy.typed_data()[i] * w.typed_data()[i % columns];
    dw->typed_data()[i % columns] += dy.typed_data()[i] * x.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(squared_relu_handler, squared_relu,
                              ffi::Ffi::Bind().Attr<float>("scale").Arg<F32>().Ret<F32>().Ret<F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(squared_relu_grad_handler, squared_relu_grad,
                              ffi::Ffi::Bind().Attr<float>("scale").Arg<F32>().Arg<F32>().Ret<F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weighted_handler, weighted, ffi::Ffi::Bind().Arg<F32>().Arg<F32>().Ret<F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(weighted_grad_handler, weighted_grad,
                              ffi::Ffi::Bind().Arg<F32>().Arg<F32>().Arg<F32>().Ret<F32>().Ret<F32>());

void register_handlers() {
  for (const int64_t count : {1, 8}) {
    const Plugin& plugin = cpu_devices(count).client().plugin();
    register_ffi_handler<squared_relu_handler>(plugin, "test_squared_relu");
    register_ffi_handler<squared_relu_grad_handler>(plugin, "test_squared_relu_grad");
    register_ffi_handler<weighted_handler>(plugin, "test_weighted");
    register_ffi_handler<weighted_grad_handler>(plugin, "test_weighted_grad");
  }
}

Kernel squared_relu_kernel(const CompositeSite& site) {
  const Partition split = site.partitions[0];
  const NamedAttributes scale{{"scale", static_cast<float>(std::get<double>(site.attributes.at("scale")))}};
  const int64_t elements = site.inputs[0].elements();
  const auto gradient = [=](const VjpArgs& args) -> Tensors {
    const Tensor& relu = args.results[1];
    return custom_call({.kernel = "test_squared_relu_grad/1",
                        .target = "test_squared_relu_grad",
                        .attributes = scale,
                        .results = {relu.shape()},
                        .in = {split, split},
                        .out = {split},
                        .cost = {.flops = 3 * elements, .bytes = 12 * elements}},
                       {relu, args.cotangents[0]});
  };
  return [=](const Tensors& inputs) -> Tensors {
    const Shape shape = inputs[0].shape();
    return {custom_call({.kernel = "test_squared_relu/1",
                         .target = "test_squared_relu",
                         .attributes = scale,
                         .results = {shape, shape},
                         .in = {split},
                         .out = {split, split},
                         .cost = {.flops = 2 * elements, .bytes = 12 * elements, .workspace = 64},
                         .gradient = gradient},
                        inputs)[0]};
  };
}

// For the gradient of w [D], each device sums over its own rows of x and returns the sum as one row of an array [parts,
// D]. Ordinary ops add up the rows of this array.
Kernel weighted_kernel(const CompositeSite& site) {
  const Partition split_x = site.partitions[0], split_w = site.partitions[1];
  const std::vector<std::string> rows = split_x.dims.empty() ? std::vector<std::string>{} : split_x.dims[0];
  int64_t parts = 1;
  for (const std::string& axis : rows) parts *= site.mesh.size_of(axis);
  Partition split_sums = split_w;
  split_sums.dims.insert(split_sums.dims.begin(), rows);
  const auto gradient = [=](const VjpArgs& args) -> Tensors {
    const Tensor &x = args.operands[0], &w = args.operands[1];
    const Tensors both = custom_call({.kernel = "test_weighted_grad/1",
                                      .target = "test_weighted_grad",
                                      .results = {x.shape(), {w.dtype(), {parts, w.dim(0)}}},
                                      .in = {split_x, split_w, split_x},
                                      .out = {split_x, split_sums}},
                                     {x, w, args.cotangents[0]});
    return {both[0], reduce_sum(both[1], {0})};
  };
  return [=](const Tensors& inputs) -> Tensors {
    return custom_call({.kernel = "test_weighted/1",
                        .target = "test_weighted",
                        .results = {inputs[0].shape()},
                        .in = {split_x, split_w},
                        .out = {split_x},
                        .gradient = gradient},
                       inputs);
  };
}

std::optional<Kernel> choose(const CompositeSite& site) {
  if (site.inputs[0].dtype != DType::kF32) return std::nullopt;
  if (site.name == "squared_relu") return squared_relu_kernel(site);
  if (site.name == "weighted") return weighted_kernel(site);
  return std::nullopt;
}

Tensor squared_relu_body(const Tensor& x, double scale) {
  const Tensor relu = maximum(x, zeros_like(x));
  return relu * relu * scale;
}
Tensor squared_relu_of(const Tensor& x, double scale, const Partition& split = {}) {
  return composite("squared_relu", {{"scale", scale}}, {x}, {split},
                   [scale](const Tensors& in) -> Tensors { return {squared_relu_body(in[0], scale)}; })[0];
}
Tensor weighted_of(const Tensor& x, const Tensor& w, const Partition& split_x = {}, const Partition& split_w = {}) {
  return composite("weighted", {}, {x, w}, {split_x, split_w},
                   [](const Tensors& in) -> Tensors { return {in[0] * in[1]}; })[0];
}

Tensor sum(const Tensor& x) {
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  return reduce_sum(x, all);
}

Value any(Dims dims, uint32_t seed) {
  return random_value({DType::kF32, std::move(dims)}, seed, -2, 2);
}

constexpr int64_t kTrips = 3;

// Returns the loss of a loop over layers. Each layer has a matrix product and both composites. Shapes: x [8, 4], w
// [trips, 4, 4], v [4].
Tensor layers(const Tensor& x, const Tensor& w, const Tensor& v, Remat remat, const Partition& split_x,
              const Partition& split_v) {
  const ScanStep out = scan(kTrips, {x}, {w},
                            [&](const Tensor&, const Tensors& carries, const Tensors& xs) -> ScanStep {
                              const Tensor h = sharding_constraint(
                                  dot_general(carries[0], xs[0], {.lhs_contracting = {1}, .rhs_contracting = {0}}),
                                  split_x.dims.empty() ? Partition{{{}, {}}} : split_x);
                              const Tensor activated = squared_relu_of(sine(h), 0.5, split_x);
                              return {{carries[0] * 0.5 + weighted_of(activated, v, split_x, split_v)}, {}};
                            },
                            {.remat = remat});
  return sum(out.carries[0] * out.carries[0]);
}

// Returns the loss and its gradients with respect to x, w and v.
std::map<std::string, Value> run_layers(const MeshAxes& mesh, const ChooseKernel& chooser, Remat remat,
                                        const Partition& split_x = {}, const Partition& split_v = {}) {
  GraphRun run(mesh, chooser);
  const Tensor x = run.input(any({8, 4}, 1), split_x), w = run.input(any({kTrips, 4, 4}, 2)),
               v = run.input(any({4}, 3), split_v);
  const Tensor loss = layers(x, w, v, remat, split_x, split_v);
  const Tensors grads = grad(loss, {x, w, v});
  run.output("loss", loss);
  run.output("x", grads[0]);
  run.output("w", grads[1]);
  run.output("v", grads[2]);
  return run.run();
}

void expect_near(const std::map<std::string, Value>& got, const std::map<std::string, Value>& wanted) {
  for (const auto& [name, value] : wanted) {
    double scale = 0;
    for (const double x : value.elements) scale = std::max(scale, std::abs(x));
    EXPECT_GT(scale, 1e-3) << name << " is too small to compare";
    ASSERT_EQ(got.at(name).elements.size(), value.elements.size());
    for (size_t e = 0; e < value.elements.size(); ++e)
      EXPECT_NEAR(got.at(name).elements[e], value.elements[e], 2e-6 * scale) << name << " element " << e;
  }
}

std::string text_of(const ChooseKernel& chooser, bool written_out) {
  Program program({}, chooser);
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2, 3}}), w = program.input("w", {DType::kF32, {3}});
  const ScanStep out = scan(2, {x}, {}, [&](const Tensor&, const Tensors& carries, const Tensors&) -> ScanStep {
    PathScope path("layer");
    // The inputs of the composite are in another order than the order in which its body reads them. The program must be
    // the same.
    if (written_out) return {{w * carries[0]}, {}};
    return {
        {composite("toy", {}, {carries[0], w}, {}, [](const Tensors& in) -> Tensors { return {in[1] * in[0]}; })[0]},
        {}};
  });
  program.output("y", out.carries[0]);
  program.output("grad", grad(sum(out.carries[0]), {w})[0]);
  return program.text();
}

TEST(Composite, WithoutAKernelTheProgramEqualsThatOfTheBody) {
  EXPECT_EQ(text_of({}, false), text_of({}, true));
  EXPECT_EQ(text_of(choose, false), text_of({}, true)) << "a chooser that offers nothing";
}

TEST(Composite, TheChooserSeesNameAttributesShapesAndPartitions) {
  std::vector<CompositeSite> seen;
  Program program({{{"dp", 4}, {"tp", 2}}}, [&](const CompositeSite& site) -> std::optional<Kernel> {
    seen.push_back(site);
    return std::nullopt;
  });
  BuildScope scope(program.block());
  const Partition rows{{{"dp"}, {}}};
  const Tensor x = program.input("x", {DType::kBF16, {8, 4}});
  scan(2, {x}, {}, [&](const Tensor&, const Tensors& carries, const Tensors&) -> ScanStep {
    return {{squared_relu_of(carries[0], 3, rows)}, {}};
  });
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].name, "squared_relu");
  EXPECT_EQ(std::get<double>(seen[0].attributes.at("scale")), 3);
  EXPECT_EQ(seen[0].inputs, (std::vector<Shape>{{DType::kBF16, {8, 4}}}));
  EXPECT_EQ(seen[0].results, (std::vector<Shape>{{DType::kBF16, {8, 4}}}));
  EXPECT_EQ(seen[0].partitions, (std::vector<Partition>{rows}));
  EXPECT_EQ(seen[0].mesh.size(), 8);
}

TEST(Composite, AKernelsGradientAgreesWithFiniteDifferences) {
  register_handlers();
  forward_calls = backward_calls = 0;
  GraphRun run({}, choose);
  const Tensor x = run.input(any({2, 4}, 1)), w = run.input(any({4}, 2));
  const Tensor dx = literal(any({2, 4}, 3).elements, x.shape()), dw = literal(any({4}, 4).elements, w.shape());
  auto loss = [](const Tensor& a, const Tensor& b) { return sum(sine(weighted_of(squared_relu_of(a, 0.3), b))); };
  const Tensors grads = grad(loss(x, w), {x, w});
  run.output("analytic", sum(grads[0] * dx) + sum(grads[1] * dw));
  run.output("ahead", loss(x + dx * 1e-2, w + dw * 1e-2));
  run.output("behind", loss(x - dx * 1e-2, w - dw * 1e-2));
  const std::map<std::string, Value> got = run.run();
  const double numeric = (got.at("ahead").elements[0] - got.at("behind").elements[0]) / 2e-2;
  EXPECT_GT(std::abs(numeric), 0.1);
  EXPECT_NEAR(got.at("analytic").elements[0], numeric, 2e-3 * std::abs(numeric));
  EXPECT_EQ(forward_calls, 3);
  EXPECT_EQ(backward_calls, 1);
}

TEST(Composite, InALoopAKernelIsEqualToItsBodyUnderEachPolicy) {
  register_handlers();
  const std::map<std::string, Value> body = run_layers({}, {}, Remat::kNone);
  for (const auto& [remat, forward] : {std::pair(Remat::kNone, 1), {Remat::kDots, 1}, {Remat::kFull, 2}}) {
    forward_calls = backward_calls = 0;
    expect_near(run_layers({}, choose, remat), body);
    EXPECT_EQ(forward_calls, forward * kTrips) << "policy " << static_cast<int>(remat);
    EXPECT_EQ(backward_calls, kTrips);
  }
}

// The rows of x are split over dp; over dp, with its columns and v over tp; over both axes; or nothing is split.
TEST(Composite, OnSeveralDevicesAKernelSeesShardsAndIsEqualToItsBody) {
  register_handlers();
  const std::map<std::string, Value> body = run_layers({}, {}, Remat::kNone);
  const MeshAxes mesh{{{"dp", 4}, {"tp", 2}}};
  const std::vector<std::pair<Partition, Partition>> splits{
      {{{{"dp"}, {}}}, {{{}}}}, {{{{"dp"}, {"tp"}}}, {{{"tp"}}}}, {{{{"dp", "tp"}, {}}}, {{{}}}}, {{}, {}}};
  for (const auto& [split_x, split_v] : splits)
    for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
      forward_calls = 0;
      expect_near(run_layers(mesh, choose, remat, split_x, split_v), body);
      EXPECT_EQ(forward_calls, 8 * kTrips * (remat == Remat::kFull ? 2 : 1));
    }
}

TEST(Composite, OnAMeshTheCallStandsInAManualRegion) {
  Program program({{{"dp", 4}, {"tp", 2}}}, choose);
  BuildScope scope(program.block());
  const Partition split{{{"dp"}, {}}};
  program.output("y", squared_relu_of(program.input("x", {DType::kF32, {8, 4}}, split), 2, split), split);
  EXPECT_THAT(program.text(), HasSubstr(R"(
    %0:2 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"dp"}, {}]>] out_shardings=[<@mesh, [{"dp"}, {}]>, <@mesh, [{"dp"}, {}]>] manual_axes={"dp", "tp"} (%1: tensor<2x4xf32>) {
      %2:2 = stablehlo.custom_call @test_squared_relu(%1) {api_version = 4 : i32, backend_config = {scale = 2.00000000000000000e+00 : f32}, mhlo.frontend_attributes = {fettle_kernel = "test_squared_relu/1", fettle_flops = "16", fettle_bytes = "96"}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) loc("")
      sdy.return %2#0, %2#1 : tensor<2x4xf32>, tensor<2x4xf32>
    } : (tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) loc("")
)")) << program.text();
}

TEST(Composite, AttributesOfEveryType) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2}});
  program.output("y", custom_call({.target = "a$b target",
                                   .attributes = {{"flag", true},
                                                  {"small", int32_t{-7}},
                                                  {"large", int64_t{1} << 40},
                                                  {"single", 0.5f},
                                                  {"infinite", -INFINITY},
                                                  {"text", "say \"a\\b\"\n"},
                                                  {"dims", std::vector<int64_t>{2, 3}},
                                                  {"none", std::vector<int64_t>{}},
                                                  {"floats", std::vector<float>{1, INFINITY}}},
                                   .results = {x.shape()}},
                                  {x})[0]);
  EXPECT_THAT(
      program.text(),
      HasSubstr(
          R"(@"a$b target"(%arg0) {api_version = 4 : i32, backend_config = {dims = array<i64: 2, 3>, flag = true, floats = array<f32: 1.00000000000000000e+00, 0x7F800000>, infinite = 0xFF800000 : f32, large = 1099511627776 : i64, none = array<i64>, single = 5.00000000000000000e-01 : f32, small = -7 : i32, text = "say \22a\5Cb\22\0A"}, operand_layouts = [dense<[0]> : tensor<1xindex>], result_layouts = [dense<[0]> : tensor<1xindex>]})"))
      << program.text();
}

TEST(Composite, FlopsAndKernelsOfAProgram) {
  Program program({}, choose);
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8, 4}}), w = program.input("w", {DType::kF32, {kTrips, 4, 4}}),
               v = program.input("v", {DType::kF32, {4}});
  program.output("loss", layers(x, w, v, Remat::kDots, {}, {}));
  const int64_t products = kTrips * 2 * 8 * 4 * 4;
  EXPECT_EQ(program.flops(), products + kTrips * 2 * 32);
  EXPECT_EQ(program.kernels(),
            (std::vector<KernelUse>{{"test_squared_relu/1", kTrips, {kTrips * 2 * 32, kTrips * 12 * 32, 64}},
                                    {"test_weighted/1", kTrips, {}}}));
  program.output("grad", grad(layers(x, w, v, Remat::kFull, {}, {}), {x})[0]);
  ASSERT_EQ(program.kernels().size(), 4u);
  EXPECT_EQ(program.kernels()[0].calls, 3 * kTrips) << "once for the loss, twice for the gradient with full remat";
  EXPECT_EQ(program.kernels()[1].kernel, "test_squared_relu_grad/1");
  EXPECT_EQ(program.kernels()[1].calls, kTrips);
}

TEST(Composite, ACallThatNothingReadsIsPruned) {
  Program program({}, choose);
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2, 2}});
  squared_relu_of(x, 1);
  program.output("y", x * 2.0);
  EXPECT_TRUE(program.kernels().empty());
}

TEST(Composite, WrongKernelsAndBodiesAreRefused) {
  auto message = [](const ChooseKernel& chooser, const std::function<void(const Tensor& x)>& build) -> std::string {
    Program program({}, chooser);
    BuildScope scope(program.block());
    PathScope path("some/layer");
    try {
      build(program.input("x", {DType::kF32, {2}}));
    } catch (const InternalError& error) {
      return error.what();
    }
    return "no error";
  };
  auto gives = [](const Tensors& results) {
    return [results](const CompositeSite&) -> std::optional<Kernel> {
      return [results](const Tensors& in) { return results.empty() ? Tensors{convert(in[0], DType::kBF16)} : results; };
    };
  };
  const auto build = [](const Tensor& x) { squared_relu_of(x, 1); };
  EXPECT_THAT(message(gives({}), build), HasSubstr("[composite_c2] result 0 of the kernel of squared_relu is"));
  EXPECT_THAT(message(gives({Tensor{}, Tensor{}}), build), HasSubstr("gave 2 results, wanted 1 (at some/layer)"));
  EXPECT_THAT(message(choose,
                      [](const Tensor& x) {
                        composite("sneaky", {}, {x}, {}, [&](const Tensors&) -> Tensors { return {x * 2.0}; });
                      }),
              HasSubstr("does not enclose"))
      << "a body that reads a tensor other than its inputs";
  EXPECT_THAT(message({},
                      [](const Tensor& x) {
                        composite("toy", {}, {x}, {{}, {}}, {});
                      }),
              HasSubstr("[composite_c1] toy has 1 inputs and 2 partitions"));
  EXPECT_THAT(message({},
                      [](const Tensor& x) {
                        grad(sum(custom_call({.target = "handler", .results = {x.shape()}}, {x})[0]), {x});
                      }),
              HasSubstr("handler has no gradient"));
}

}  // namespace
}  // namespace fettle
