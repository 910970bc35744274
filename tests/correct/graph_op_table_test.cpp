// Tests that every row of the op table has a forward case, which prints and runs the op, and a bad-shape case. If a row
// states a VJP, FLOPs or liveness, it also has a case for that. VJPs are compared with finite differences. All cases of
// a kind run as one program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <span>

#include "graph/autodiff/grad.h"
#include "graph/custom_call.h"
#include "graph/ops.h"
#include "graph/rows/rows.h"
#include "graph/scan.h"
#include "graph_cases.h"

namespace fettle {
namespace {

std::vector<ForwardCase> forward_cases() {
  std::vector<ForwardCase> all = elementwise_forward_cases();
  for (ForwardCase& c : structure_forward_cases()) all.push_back(std::move(c));
  return all;
}

template <typename Case>
std::set<Op> ops_of(const std::vector<Case>& cases) {
  std::set<Op> ops;
  for (const Case& c : cases) ops.insert(c.op);
  return ops;
}

TEST(OpTable, RowsAreInOrderAndNamedOnce) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < op_table().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(op_table()[i].op), i);
    EXPECT_TRUE(names.insert(op_table()[i].name).second) << op_table()[i].name;
  }
}

TEST(OpTable, EveryRowHasItsCases) {
  const std::set<Op> forward = ops_of(forward_cases()), vjp = ops_of(vjp_cases()), bad = ops_of(bad_shape_cases());
  const std::set<Op> flops = ops_of(flops_cases()), liveness = ops_of(liveness_cases());
  for (const OpRow& row : op_table()) {
    EXPECT_TRUE(forward.contains(row.op)) << row.name << " lacks a forward case";
    EXPECT_TRUE(bad.contains(row.op)) << row.name << " lacks a bad-shape case";
    EXPECT_NE(row.shape.value, nullptr) << row.name << " lacks a shape rule";
    EXPECT_EQ(vjp.contains(row.op), row.vjp != nullptr) << row.name << ": a VJP and its case go together";
    EXPECT_EQ(flops.contains(row.op), row.flops != nullptr) << row.name << ": FLOPs and their case go together";
    ASSERT_NE(row.needs.value, nullptr) << row.name << " does not say which operands it needs";
    EXPECT_EQ(liveness.contains(row.op), row.needs != rows::all_operands)
        << row.name << ": operands that are not needed and a liveness case go together";
    EXPECT_TRUE(row.spell != nullptr || row.needs == rows::first_operand)
        << row.name << " lacks a spelling, and it is not a marker that its first operand replaces";
  }
}

TEST(OpTable, ViewsHaveTheElementsOfTheirOperand) {
  for (const ForwardCase& c : forward_cases())
    if (op_row(c.op).view) {
      EXPECT_EQ(c.expected[0], c.arguments[0].elements) << op_row(c.op).name << ": " << c.name;
    }
}

TEST(OpTable, AnOpThatKeepsItsOperandsApartHasOneResultForEach) {
  for (const ForwardCase& c : forward_cases())
    if (op_row(c.op).apart) {
      EXPECT_EQ(c.expected.size(), c.arguments.size()) << op_row(c.op).name << ": " << c.name;
    }
}

// Returns whether a node of `op` was appended to the block after the first `before` nodes.
bool has_op(const Block& block, int32_t before, Op op) {
  for (int32_t id = before; id < block.size(); ++id)
    if (block.node(id).op == op) return true;
  return false;
}

template <typename Case>
std::string name_of(const Case& c) {
  return std::string(op_row(c.op).name) + " (" + c.name + ")";
}

// Calls check(cases), with all cases in one program on the CPU. On another device, each case has its own program and
// its name is printed first, because an op that the plugin does not support may end the process. Custom calls are left
// out there, because the functions that they call compute on the host.
template <typename Case, typename Check>
void check_together(std::span<const Case> cases, Check check) {
  if (test_plugin() == "cpu") return check(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].op == Op::kCustomCall) continue;
    std::printf("case %zu: %s\n", i, name_of(cases[i]).c_str());
    std::fflush(stdout);
    check(cases.subspan(i, 1));
  }
}

void check_forward(std::span<const ForwardCase> cases) {
  GraphRun run;
  std::vector<std::vector<Shape>> shapes;
  for (size_t i = 0; i < cases.size(); ++i) {
    const int32_t before = run.program().block().size();
    std::vector<Tensor> arguments;
    for (const Value& value : cases[i].arguments) arguments.push_back(run.input(value));
    const std::vector<Tensor> results = cases[i].build(arguments);
    EXPECT_TRUE(has_op(run.program().block(), before, cases[i].op)) << name_of(cases[i]) << " does not use its op";
    ASSERT_EQ(results.size(), cases[i].expected.size()) << name_of(cases[i]);
    shapes.emplace_back();
    for (size_t r = 0; r < results.size(); ++r) {
      run.output(std::to_string(i) + "/" + std::to_string(r), results[r]);
      shapes.back().push_back(results[r].shape());
    }
  }
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < cases.size(); ++i)
    for (size_t r = 0; r < cases[i].expected.size(); ++r) {
      const Value& value = got.at(std::to_string(i) + "/" + std::to_string(r));
      EXPECT_EQ(value.shape, shapes[i][r]);
      const std::vector<double>& wanted = cases[i].expected[r];
      ASSERT_EQ(value.elements.size(), wanted.size()) << name_of(cases[i]);
      for (size_t e = 0; e < wanted.size(); ++e) {
        if (value.elements[e] == wanted[e]) continue;  // equal infinities pass, too
        EXPECT_NEAR(value.elements[e], wanted[e], cases[i].tolerance * std::max(1.0, std::abs(wanted[e])))
            << name_of(cases[i]) << " element " << e;
      }
    }
}

TEST(OpTable, ForwardGivesTheExpectedValues) {
  const std::vector<ForwardCase> cases = forward_cases();
  check_together(std::span<const ForwardCase>(cases), check_forward);
}

// Returns random numbers: the direction of a finite difference, or weights of results. For f64 they are any numbers;
// for other dtypes they are small integers, with which the arithmetic is exact.
Value probe(const Shape& shape, uint32_t seed) {
  return shape.dtype == DType::kF64 ? random_value(shape, seed) : random_integers(shape, seed, 2);
}

Tensor as_literal(const Value& value) {
  return literal(value.elements, value.shape);
}

// Returns one f64 number: the sum of the results with fixed weights.
Tensor weighted_sum(const std::vector<Tensor>& results) {
  Tensor sum = constant(0, DType::kF64);
  for (size_t r = 0; r < results.size(); ++r) {
    if (!is_float(results[r].dtype())) continue;
    const Tensor weighted =
        convert(results[r] * as_literal(probe(results[r].shape(), 100 + static_cast<uint32_t>(r))), DType::kF64);
    Dims all;
    for (int64_t d = 0; d < weighted.rank(); ++d) all.push_back(d);
    sum = sum + reduce_sum(weighted, all);
  }
  return sum;
}

void check_vjps(std::span<const VjpCase> cases) {
  GraphRun run;
  for (size_t i = 0; i < cases.size(); ++i) {
    const VjpCase& c = cases[i];
    std::vector<Tensor> at, ahead, behind, wrt, directions;
    for (size_t a = 0; a < c.arguments.size(); ++a) {
      const Tensor x = run.input(c.arguments[a]);
      at.push_back(x);
      if (!is_float(x.dtype())) {
        ahead.push_back(x), behind.push_back(x);
        continue;
      }
      const Tensor direction = as_literal(probe(x.shape(), 7 + static_cast<uint32_t>(a)));
      wrt.push_back(x), directions.push_back(direction);
      ahead.push_back(x + direction * c.h), behind.push_back(x - direction * c.h);
    }
    const int32_t before = run.program().block().size();
    const std::string prefix = std::to_string(i);
    const Tensor y = weighted_sum(c.build(at));
    EXPECT_TRUE(has_op(run.program().block(), before, c.op)) << name_of(c) << " does not use its op";
    run.output(prefix + "/numeric", (weighted_sum(c.build(ahead)) - weighted_sum(c.build(behind))) / (2 * c.h));
    const std::vector<Tensor> grads = grad(y, wrt);
    Tensor analytic = constant(0, DType::kF64);
    for (size_t k = 0; k < wrt.size(); ++k) {
      ASSERT_EQ(grads[k].shape(), wrt[k].shape()) << name_of(c);
      Dims all;
      for (int64_t d = 0; d < wrt[k].rank(); ++d) all.push_back(d);
      analytic = analytic + reduce_sum(convert(grads[k], DType::kF64) * convert(directions[k], DType::kF64), all);
    }
    run.output(prefix + "/analytic", analytic);
  }
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < cases.size(); ++i) {
    const double numeric = got.at(std::to_string(i) + "/numeric").elements[0];
    const double analytic = got.at(std::to_string(i) + "/analytic").elements[0];
    EXPECT_GT(std::abs(numeric), 1e-3) << name_of(cases[i]) << ": the derivative is too small to compare";
    EXPECT_NEAR(analytic, numeric, cases[i].tolerance * std::max(1.0, std::abs(numeric))) << name_of(cases[i]);
  }
}

TEST(OpTable, VjpsAgreeWithFiniteDifferences) {
  const std::vector<VjpCase> cases = vjp_cases();
  check_together(std::span<const VjpCase>(cases), check_vjps);
}

TEST(OpTable, BadShapesAreRefusedWithTheSpecsLabel) {
  for (const BadShapeCase& c : bad_shape_cases()) {
    Program program;
    BuildScope scope(program.block());
    PathScope path("some/layer");
    try {
      c.build();
      ADD_FAILURE() << op_row(c.op).name << ": " << c.label << " was not thrown";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("[" + c.label + "]")) << op_row(c.op).name;
    }
  }
}

// The results of an op without a VJP count as constants: gradients stop there without an error.
TEST(OpTable, RowsWithoutAVjpStopGradients) {
  GraphRun run;
  const Tensor x = run.input(f32({3}, {0.5, -1.5, 2}));
  const Tensor y = reduce_sum(floor(x) * x + stop_gradient(x * 5.0) + sign(x), {0});
  run.output("grad", grad(y, {x})[0]);
  EXPECT_EQ(run.run().at("grad").elements, (std::vector<double>{0, -2, 2}));
}

TEST(OpTable, TiesAreSharedAsDocumented) {
  GraphRun run;
  const Tensor x = run.input(f32({2}, {1, 1})), y = run.input(f32({2}, {1, 2}));
  const std::vector<Tensor> of_max = grad(reduce_sum(maximum(x, y), {0}), {x, y});
  const std::vector<Tensor> of_min = grad(reduce_sum(minimum(x, y), {0}), {x, y});
  run.output("max x", of_max[0]);
  run.output("max y", of_max[1]);
  run.output("min x", of_min[0]);
  run.output("min y", of_min[1]);
  run.output("reduce", grad(reduce_max(x, {0}), {x})[0]);
  const std::map<std::string, Value> got = run.run();
  EXPECT_EQ(got.at("max x").elements, (std::vector<double>{1, 0})) << "of equal operands the first takes all";
  EXPECT_EQ(got.at("max y").elements, (std::vector<double>{0, 1}));
  EXPECT_EQ(got.at("min x").elements, (std::vector<double>{1, 1}));
  EXPECT_EQ(got.at("min y").elements, (std::vector<double>{0, 0}));
  EXPECT_EQ(got.at("reduce").elements, (std::vector<double>{0.5, 0.5})) << "equal elements share";
}

// Many positions read one row of a table, and all read one bias.
TEST(OpTable, GradientsOf16BitFloatsAreAddedUpInF32) {
  constexpr int64_t kPositions = 4096, kWidth = 64;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    GraphRun run;
    const Tensor row = run.input({{dtype, {1, kWidth}}, std::vector<double>(kWidth, 1)});
    const Tensor bias = run.input({{dtype, {kWidth}}, std::vector<double>(kWidth, 1)});
    const Tensor factor = run.input(random_value({dtype, {kPositions, kWidth}}, 1, 0.5, 1.5));
    const Tensor read = take(row, full(0, {DType::kI32, {kPositions}}));
    auto give = [&](const std::string& name, const Tensor& x, const Tensor& wrt) {
      run.output(name, convert(grad(reduce_sum(convert(x * factor, DType::kF32), {0, 1}), {wrt})[0], DType::kF32));
    };
    give("row", read, row);
    give("bias", broadcast_to(bias, {kPositions, kWidth}), bias);
    run.output("wanted", reduce_sum(convert(factor, DType::kF32), {0}));
    const std::map<std::string, Value> got = run.run();
    for (const char* name : {"row", "bias"})
      for (size_t e = 0; e < kWidth; ++e) {
        const double wanted = got.at("wanted").elements[e];
        ASSERT_NEAR(got.at(name).elements[e], wanted, wanted / 250) << name << ' ' << stablehlo_name(dtype);
      }
  }
}

// For example the head's gradient, if the table is also the head.
TEST(OpTable, GradientsOfABf16TablesRowsAreAddedToItsOtherGradient) {
  GraphRun run;
  const Tensor table = run.input(bf16({2, 1}, {1, 1}));
  const Tensor rows = convert(take(table, full(0, {DType::kI32, {126}})), DType::kF32);
  const Tensor whole = convert(table, DType::kF32);
  run.output("grad", grad(reduce_sum(rows, {0, 1}) + reduce_sum(whole * 3.0, {0, 1}), {table})[0]);
  EXPECT_THAT(run.program().text(), testing::Not(testing::ContainsRegex("stablehlo.add [^:]*: tensor<2x1x")));
  EXPECT_EQ(run.run().at("grad").elements, (std::vector<double>{129, 3}));
}

TEST(OpTable, FlopsAreThoseOfTheCases) {
  for (const FlopsCase& c : flops_cases()) {
    Program program;
    BuildScope scope(program.block());
    const Tensor result = c.build();
    const Node& node = result.block()->node(result.node());
    ASSERT_EQ(node.op, c.op) << op_row(c.op).name;
    EXPECT_EQ(op_row(c.op).flops.value(node), c.expected) << op_row(c.op).name;
  }
}

TEST(OpTable, OperandsThatANodeNeeds) {
  for (const LivenessCase& c : liveness_cases()) {
    Program program;
    BuildScope scope(program.block());
    const Tensor result = c.build();
    const Node& node = result.block()->node(result.node());
    ASSERT_EQ(node.op, c.op) << name_of(c);
    EXPECT_EQ(op_row(c.op).needs.value(node, c.live), c.expected) << name_of(c);
  }
}

TEST(OpTable, WhatLoopsSaveOfConversionsAndCalls) {
  Program program;
  BuildScope scope(program.block());
  const auto saved = [](const Tensor& x) {
    const Node& node = Block::current().node(x.node());
    return op_row(node.op).saved.value(node);
  };
  const Tensor x = program.input("x", {DType::kF32, {2}}), narrow = program.input("narrow", {DType::kBF16, {2}});
  EXPECT_EQ(saved(convert(narrow, DType::kF32)), Saved::kNever);
  EXPECT_EQ(saved(convert(x, DType::kBF16)), Saved::kAsValue);
  CustomCall call{.target = "handler", .results = {{DType::kF32, {}}}};
  EXPECT_EQ(saved(custom_call(call, {x})[0]), Saved::kAsProduct);
  call.elementwise = true;
  EXPECT_EQ(saved(custom_call(call, {x})[0]), Saved::kAsValue);
}

TEST(OpTable, AttributesOfTheWrongKindAreRefused) {
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {2}});
  EXPECT_THROW(make_node(Op::kReshape, {x}, Permutation{{0}}), InternalError);
  EXPECT_THROW(make_node(Op::kReshape, {x}), InternalError);
}

TEST(OpTable, FlopsCountMultiplyAndAddInEveryTrip) {
  GraphRun run;
  const Tensor a = run.input(f32({2, 3, 4}, std::vector<double>(24))),
               b = run.input(f32({4, 5}, std::vector<double>(20)));
  run.output("once", dot_general(a, b, {.lhs_contracting = {2}, .rhs_contracting = {0}}));
  EXPECT_EQ(run.program().flops(), 2 * 2 * 3 * 4 * 5);
  const ScanStep looped = scan(7, {}, {}, [&](const Tensor&, const auto&, const auto&) -> ScanStep {
    return {{}, {dot_general(a, b, {.lhs_contracting = {2}, .rhs_contracting = {0}})}};
  });
  run.output("looped", looped.ys[0]);
  EXPECT_EQ(run.program().flops(), 2 * 2 * 3 * 4 * 5 * 8);
}

// A step of Llama 3.1 405B on 1,024 devices has more operations than a 64-bit integer can count.
TEST(OpTable, FlopsMayBeMoreThanIntegersCount) {
  Program program;
  BuildScope scope(program.block());
  const Tensor a = program.input("a", {DType::kBF16, {1 << 20, 1 << 20}});
  const ScanStep looped = scan(64, {}, {}, [&](const Tensor&, const auto&, const auto&) -> ScanStep {
    return {{}, {reduce_sum(dot_general(a, a, {.lhs_contracting = {1}, .rhs_contracting = {0}}), {0, 1})}};
  });
  program.output("sums", looped.ys[0]);
  EXPECT_EQ(program.flops(), 0x1p67);
}

}  // namespace
}  // namespace fettle
