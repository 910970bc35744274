// Tests the text of programs: a small complete program, shardings, locations, donation, precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/print.h"
#include "graph/scan.h"
#include "graph_run.h"

namespace fettle {
namespace {

using testing::HasSubstr;
using testing::Not;
using Tensors = std::vector<Tensor>;

TEST(Print, AWholeProgram) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("batch/x", {DType::kF32, {2, 3}}), w = program.input("weights/w", {DType::kF32, {3}});
  Tensor y;
  {
    PathScope path("layer");
    y = dot_general(x, w, {.lhs_contracting = {1}, .rhs_contracting = {0}}) * 0.5;
  }
  program.output("w", w + reduce_sum(y, {0}), {}, "weights/w");
  EXPECT_EQ(program.text(), R"(module @fettle attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> {} loc("batch/x"), %arg1: tensor<3xf32> {tf.aliasing_output = 0 : i32} loc("weights/w")) -> (tensor<3xf32> {}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32> loc("layer")
    %1 = stablehlo.constant dense<5.00000000000000000e-01> : tensor<f32> loc("layer")
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f32>) -> tensor<2xf32> loc("layer")
    %3 = stablehlo.multiply %0, %2 : tensor<2xf32> loc("layer")
    %5 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<f32> loc("")
    %4 = stablehlo.reduce(%3 init: %5) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32> loc("")
    %6 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<3xf32> loc("")
    %7 = stablehlo.add %arg1, %6 : tensor<3xf32> loc("")
    return %7 : tensor<3xf32>
  }
}
)");
}

TEST(Print, ALoopIsAWhileOverItsState) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {}}), xs = program.input("xs", {DType::kF32, {3}});
  PathScope path("layers");
  const ScanStep out = scan(3, {x}, {xs},
                            [](const Tensor&, const Tensors& c, const Tensors& s) -> ScanStep {
                              PathScope inner("mlp");
                              const Tensor next = c[0] * s[0];
                              return {{next}, {next}};
                            },
                            {.reverse = true});
  program.output("ys", out.ys[0]);
  EXPECT_EQ(print_body(program.block(), {}).find("sdy"), std::string::npos);
  EXPECT_THAT(program.text(), HasSubstr(R"(
    %0 = stablehlo.constant dense<0> : tensor<i32> loc("layers")
    %1 = stablehlo.constant dense<0.00000000000000000e+00> : tensor<3xf32> loc("layers")
    %6:4 = stablehlo.while(%2 = %0, %3 = %arg0, %4 = %1, %5 = %arg1) : tensor<i32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>
    cond {
      %7 = stablehlo.constant dense<3> : tensor<i32>
      %8 = stablehlo.compare LT, %2, %7, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %11 = stablehlo.constant dense<0> : tensor<i32> loc("layers")
      %12 = stablehlo.constant dense<2> : tensor<i32> loc("layers")
      %13 = stablehlo.subtract %12, %2 : tensor<i32> loc("layers")
      %14 = stablehlo.dynamic_slice %5, %13, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32> loc("layers")
      %15 = stablehlo.reshape %14 : (tensor<1xf32>) -> tensor<f32> loc("layers")
      %16 = stablehlo.multiply %3, %15 : tensor<f32> loc("layers/mlp")
      %17 = stablehlo.reshape %16 : (tensor<f32>) -> tensor<1xf32> loc("layers")
      %18 = stablehlo.dynamic_update_slice %4, %17, %13 : (tensor<3xf32>, tensor<1xf32>, tensor<i32>) -> tensor<3xf32> loc("layers")
      %9 = stablehlo.constant dense<1> : tensor<i32> loc("layers")
      %10 = stablehlo.add %2, %9 : tensor<i32> loc("layers")
      stablehlo.return %10, %16, %18, %5 : tensor<i32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>
    } loc("layers")
    return %6#2 : tensor<3xf32>
)"));
}

TEST(Print, ShardingsOfInputsOutputsAndActivations) {
  Program program({{{"fsdp", 4}, {"tp", 2}}});
  BuildScope scope(program.block());
  const Partition rows{{{"fsdp", "tp"}, {}}}, columns{{{}, {"tp"}}};
  const Tensor x = program.input("x", {DType::kF32, {8, 4}}, rows);
  program.output("y", sharding_constraint(x * 2.0, columns), rows);
  program.output("sum", reduce_sum(x, {0, 1}));
  const std::string text = program.text();
  EXPECT_THAT(text, HasSubstr("mhlo.num_partitions = 8 : i32"));
  EXPECT_THAT(text, HasSubstr("sdy.mesh @mesh = <[\"fsdp\"=4, \"tp\"=2]>"));
  EXPECT_THAT(
      text,
      HasSubstr("%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"fsdp\", \"tp\"}, {}]>} loc(\"x\")"));
  EXPECT_THAT(text, HasSubstr("sdy.sharding_constraint %2 <@mesh, [{}, {\"tp\"}]> : tensor<8x4xf32>"));
  EXPECT_THAT(text, HasSubstr("-> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"fsdp\", \"tp\"}, {}]>}, "
                              "tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>})"));
}

TEST(Print, HostMemoryIsNamed) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8}}, {}, Memory::kHost);
  program.output("y", place(place(x, Memory::kDevice) + 1.0, Memory::kHost), {}, "x", Memory::kHost);
  const std::string text = program.text();
  EXPECT_THAT(text, HasSubstr("%arg0: tensor<8xf32> {mhlo.memory_kind = \"pinned_host\", tf.aliasing_output = 0"));
  EXPECT_THAT(text, HasSubstr("-> (tensor<8xf32> {mhlo.memory_kind = \"pinned_host\"})"));
  EXPECT_THAT(text, HasSubstr("_xla_buffer_placement = \"device\"}} : (tensor<8xf32>) -> tensor<8xf32>"));
  EXPECT_THAT(text, HasSubstr("_xla_buffer_placement = \"pinned_host\"}} : (tensor<8xf32>) -> tensor<8xf32>"));
}

// Copies start in the order of the program's text, so each copy must be printed directly before its use.
TEST(Print, HostArraysAreFetchedWhereTheyAreUsed) {
  Program program({{{"fsdp", 2}}});
  BuildScope scope(program.block());
  const Shape stack{DType::kF32, {3, 8}}, slice{DType::kF32, {8}};
  const Partition none{{{}, {}}}, of_slice{{{}}};
  const Tensor a = program.input("a", stack, none, Memory::kHost), b = program.input("b", stack, none, Memory::kHost);
  const Tensor x = program.input("x", slice, of_slice);
  const ScanBody body = [&](const Tensor&, const auto& carries, const auto& xs) -> ScanStep {
    const Tensor of_a = place(xs[0], Memory::kDevice, of_slice), of_b = place(xs[1], Memory::kDevice, of_slice);
    return {{tanh(carries[0] * of_b) + of_a}, {}};
  };
  program.output("y", scan(3, {x}, {a, b}, body).carries[0], of_slice);
  const std::string text = program.text();
  const size_t first = text.find("annotate_device_placement"), product = text.find("stablehlo.tanh");
  const size_t second = text.find("annotate_device_placement", product);
  const size_t slice_of_a = text.rfind("dynamic_slice", second);
  EXPECT_LT(first, product);
  EXPECT_NE(second, std::string::npos);
  EXPECT_GT(slice_of_a, product);
}

TEST(Print, OneDeviceHasNoShardings) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8}}, {{{"fsdp"}}});
  program.output("y", sharding_constraint(x, {{{"fsdp"}}}) + 1.0, {{{"fsdp"}}});
  EXPECT_THAT(program.text(), Not(HasSubstr("sdy")));
}

TEST(Print, ShardingAttributes) {
  EXPECT_EQ(mlir_sharding({}, 0), "<@mesh, []>");
  EXPECT_EQ(mlir_sharding({}, 2), "<@mesh, [{}, {}]>") << "missing dims are replicated";
  EXPECT_EQ(mlir_sharding({{{}, {"fsdp", "tp"}}}, 2), "<@mesh, [{}, {\"fsdp\", \"tp\"}]>");
  EXPECT_EQ(mlir_type({DType::kPred, {}}), "tensor<i1>");
  EXPECT_EQ(mlir_type({DType::kBF16, {2, 3}}), "tensor<2x3xbf16>");
}

// Locations tell which part of the model a node comes from. Locations of gradient nodes begin with "grad/".
TEST(Print, LocationsCarryThePath) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {}});
  Tensor y;
  {
    PathScope layers("layers");
    PathScope proj("self_attn/q_proj");
    y = tanh(x);
  }
  program.output("y", y);
  {
    PathScope update("update");
    program.output("grad", grad(y, {x})[0] * 3.0);
  }
  const std::string text = program.text();
  EXPECT_THAT(text, HasSubstr("stablehlo.tanh %arg0 : tensor<f32> loc(\"layers/self_attn/q_proj\")"));
  EXPECT_THAT(text, HasSubstr("loc(\"grad/layers/self_attn/q_proj\")"));
  EXPECT_THAT(text, HasSubstr("loc(\"update\")"));
  EXPECT_THAT(text, Not(HasSubstr("update/grad")));
  EXPECT_EQ(PathScope::path(), "");
}

TEST(Print, PrecisionIsExactUnlessTf32) {
  Program program;
  BuildScope scope(program.block());
  const Tensor a = program.input("a", {DType::kF32, {2}}), b = program.input("b", {DType::kBF16, {2}});
  const DotDims inner{.lhs_contracting = {0}, .rhs_contracting = {0}};
  program.output("f32", dot_general(a, a, inner));
  program.output("bf16", dot_general(b, b, inner, DType::kF32));
  auto count = [](const std::string& text) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find("HIGHEST, HIGHEST", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count(program.text()), 1u) << "of the f32 product only";
  EXPECT_EQ(count(program.text(true)), 0u);
}

TEST(Print, OutputsThatCannotReuseAnInputAreRefused) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8}});
  EXPECT_THROW(program.output("y", x + 1.0, {}, "z"), InternalError);
  EXPECT_THROW(program.output("y", expand(x, 0), {}, "x"), InternalError);
  EXPECT_THROW(program.output("y", x, {{{"fsdp"}}}, "x"), InternalError);
}

TEST(Blocks, AnOperandOfABlockThatDoesNotEncloseThisOneIsRefused) {
  Program one, two;
  Tensor foreign;
  {
    BuildScope scope(one.block());
    foreign = one.input("x", {DType::kF32, {}});
  }
  EXPECT_THROW(exp(foreign), InternalError) << "no scope";
  BuildScope scope(two.block());
  EXPECT_THROW(exp(foreign), InternalError);
  EXPECT_THROW(exp(Tensor{}), InternalError);
}

}  // namespace
}  // namespace fettle
