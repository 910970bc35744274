// Defines the forward cases of the elementwise ops. The expected values come from the C++ library's functions in
// double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "graph/ops.h"
#include "graph_cases.h"

namespace fettle {
namespace {

using Values = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Returns the numbers rounded to f32. Both the device and the reference use the rounded numbers.
Values rounded(Values xs) {
  for (double& x : xs) x = static_cast<float>(x);
  return xs;
}

Dims count(const Values& xs) {
  return {static_cast<int64_t>(xs.size())};
}

class Cases {
 public:
  void unary(Op op, Tensor (*build)(const Tensor&), double (*reference)(double), Values xs, double tolerance = 2e-6) {
    xs = rounded(xs);
    Values wanted;
    for (double x : xs) wanted.push_back(reference(x));
    list.push_back({op,
                    "f32",
                    {f32(count(xs), xs)},
                    [build](const auto& a) { return std::vector{build(a[0])}; },
                    {wanted},
                    tolerance});
  }
  void binary(Op op, Tensor (*build)(const Tensor&, const Tensor&), double (*reference)(double, double), Values xs,
              Values ys) {
    xs = rounded(xs), ys = rounded(ys);
    Values wanted;
    for (size_t i = 0; i < xs.size(); ++i) wanted.push_back(reference(xs[i], ys[i]));
    add(
        op, "f32", {f32(count(xs), xs), f32(count(ys), ys)}, [build](const auto& a) { return build(a[0], a[1]); },
        wanted);
  }
  void add(Op op, std::string name, std::vector<Value> arguments,
           std::function<Tensor(const std::vector<Tensor>&)> build, Values wanted) {
    list.push_back({op,
                    std::move(name),
                    std::move(arguments),
                    [build](const std::vector<Tensor>& a) { return std::vector{build(a)}; },
                    {std::move(wanted)}});
  }
  std::vector<ForwardCase> list;
};

double sign_of(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
double logistic_of(double x) {
  return 1 / (1 + std::exp(-x));
}
double rsqrt_of(double x) {
  return 1 / std::sqrt(x);
}

void add_unary(Cases& c) {
  const Values any{-3.5, -1, -0.25, 0, 0.5, 1, 2.75}, positive{1e-3, 0.25, 1, 2, 9.5, 1e4};
  c.unary(Op::kAbs, abs, std::fabs, any);
  c.unary(Op::kCosine, cosine, std::cos, {-3, -0.5, 0, 1, 2, 100});
  c.unary(Op::kErf, erf, std::erf, {-5, -1, -0.25, 0, 1e-3, 0.5, 2});
  c.unary(Op::kExponential, exp, std::exp, {-80, -5, -1, 0, 0.5, 3, 20});
  c.unary(Op::kFloor, floor, std::floor, {-2.5, -2, -0.25, 0, 0.75, 3});
  c.unary(Op::kLog, log, std::log, positive);
  c.unary(Op::kLogistic, logistic, logistic_of, {-20, -2, 0, 1, 8});
  c.unary(
      Op::kNegate, operator-, [](double x) { return -x; }, any);
  c.unary(Op::kRsqrt, rsqrt, rsqrt_of, positive);
  c.unary(Op::kSign, sign, sign_of, any);
  c.unary(Op::kSine, sine, std::sin, {-3, -0.5, 0, 1, 2, 100});
  c.unary(Op::kSqrt, sqrt, std::sqrt, {0, 0.25, 2, 100});
  c.unary(Op::kTanh, tanh, std::tanh, {-9, -1, -0.1, 0, 0.5, 3});
  c.add(Op::kAbs, "i32", {i32({3}, {-7, 0, 7})}, [](const auto& a) { return abs(a[0]); }, {7, 0, 7});
  c.add(Op::kIsFinite, "f32", {f32({4}, {1, kInf, -kInf, kNan})}, [](const auto& a) { return is_finite(a[0]); },
        {1, 0, 0, 0});
  c.add(Op::kNot, "pred", {pred({2}, {1, 0})}, [](const auto& a) { return logical_not(a[0]); }, {0, 1});
  c.add(Op::kNot, "u32", {u32({2}, {0, 0xff00ff00})}, [](const auto& a) { return logical_not(a[0]); },
        {0xffffffff, 0x00ff00ff});
}

void add_binary(Cases& c) {
  const Values xs{-2.5, -1, 0, 0.5, 3, 7.25}, ys{1.5, -1, 2, -0.5, 4, -3};
  c.binary(
      Op::kAdd, operator+, [](double x, double y) { return x + y; }, xs, ys);
  c.binary(
      Op::kSubtract, operator-, [](double x, double y) { return x - y; }, xs, ys);
  c.binary(
      Op::kMultiply, operator*, [](double x, double y) { return x * y; }, xs, ys);
  c.binary(
      Op::kDivide, operator/, [](double x, double y) { return x / y; }, xs, ys);
  c.binary(
      Op::kMaximum, maximum, [](double x, double y) { return std::max(x, y); }, xs, ys);
  c.binary(
      Op::kMinimum, minimum, [](double x, double y) { return std::min(x, y); }, xs, ys);
  c.binary(Op::kPower, power, [](double x, double y) { return std::pow(x, y); }, {0.5, 2, 3, 10}, {2, -1.5, 0, 0.3});
  c.binary(
      Op::kRemainder, remainder, [](double x, double y) { return std::fmod(x, y); }, xs, ys);
  c.add(Op::kDivide, "i32 towards zero", {i32({4}, {7, -7, 7, -7}), i32({4}, {2, 2, -2, -2})},
        [](const auto& a) { return a[0] / a[1]; }, {3, -3, -3, 3});
  c.add(Op::kMultiply, "u32 wraps", {u32({2}, {0x80000001, 0x7feb352d}), u32({2}, {2, 0x10001})},
        [](const auto& a) { return a[0] * a[1]; },
        {2, static_cast<double>(static_cast<uint32_t>(0x7feb352du * 0x10001u))});
  c.add(Op::kAdd, "numpy broadcast", {f32({2, 1}, {10, 20}), f32({3}, {1, 2, 3})},
        [](const auto& a) { return a[0] + a[1]; }, {11, 12, 13, 21, 22, 23});

  const std::vector<Value> bits{u32({3}, {0xf0f0f0f0, 5, 0}), u32({3}, {0xff00ff00, 3, 9})};
  c.add(Op::kAnd, "u32", bits, [](const auto& a) { return logical_and(a[0], a[1]); }, {0xf000f000, 1, 0});
  c.add(Op::kOr, "u32", bits, [](const auto& a) { return logical_or(a[0], a[1]); }, {0xfff0fff0, 7, 9});
  c.add(Op::kXor, "u32", bits, [](const auto& a) { return bit_xor(a[0], a[1]); }, {0x0ff00ff0, 6, 9});
  c.add(Op::kAnd, "pred", {pred({4}, {0, 0, 1, 1}), pred({4}, {0, 1, 0, 1})},
        [](const auto& a) { return logical_and(a[0], a[1]); }, {0, 0, 0, 1});
  c.add(Op::kOr, "pred", {pred({4}, {0, 0, 1, 1}), pred({4}, {0, 1, 0, 1})},
        [](const auto& a) { return logical_or(a[0], a[1]); }, {0, 1, 1, 1});
  c.add(Op::kShiftLeft, "u32", {u32({2}, {1, 0x80000001})}, [](const auto& a) { return shift_left(a[0], 4); },
        {16, 16});
  c.add(Op::kShiftRightLogical, "u32", {u32({2}, {0x80000000, 31})}, [](const auto& a) { return shift_right(a[0], 4); },
        {0x08000000, 1});
}

void add_choices(Cases& c) {
  const Values xs{1, 2, 3, kNan}, ys{2, 2, 2, 2};
  struct Case {
    const char* name;
    Direction direction;
    Values wanted;
  };
  const std::vector<Case> directions{{"EQ", Direction::kEQ, {0, 1, 0, 0}}, {"NE", Direction::kNE, {1, 0, 1, 1}},
                                     {"GE", Direction::kGE, {0, 1, 1, 0}}, {"GT", Direction::kGT, {0, 0, 1, 0}},
                                     {"LE", Direction::kLE, {1, 1, 0, 0}}, {"LT", Direction::kLT, {1, 0, 0, 0}}};
  for (const auto& [name, direction, wanted] : directions)
    c.add(
        Op::kCompare, name, {f32({4}, xs), f32({4}, ys)},
        [direction = direction](const auto& a) { return compare(a[0], direction, a[1]); }, wanted);
  c.add(Op::kCompare, "i32 is signed", {i32({2}, {-1, 1}), i32({2}, {1, -1})},
        [](const auto& a) { return compare(a[0], Direction::kLT, a[1]); }, {1, 0});
  c.add(Op::kCompare, "u32 is unsigned", {u32({2}, {0xffffffff, 1}), u32({2}, {1, 0xffffffff})},
        [](const auto& a) { return compare(a[0], Direction::kLT, a[1]); }, {0, 1});
  c.add(Op::kCompare, "pred", {pred({2}, {0, 1}), pred({2}, {1, 1})},
        [](const auto& a) { return compare(a[0], Direction::kLT, a[1]); }, {1, 0});
  c.add(Op::kSelect, "one predicate a row", {pred({2, 1}, {1, 0}), f32({2, 2}, {1, 2, 3, 4}), f32({}, {9})},
        [](const auto& a) { return select(a[0], a[1], a[2]); }, {1, 2, 9, 9});

  c.add(Op::kConvert, "f32 to bf16 and back rounds to even", {f32({4}, {1.00390625, 1.01171875, -3, 1e-3})},
        [](const auto& a) { return convert(convert(a[0], DType::kBF16), DType::kF32); },
        {1, 1.015625, -3, bf16_to_f32(f32_to_bf16(1e-3f))});
  c.add(Op::kConvert, "f32 to i32 towards zero", {f32({3}, {-1.75, 0.5, 2.99})},
        [](const auto& a) { return convert(a[0], DType::kI32); }, {-1, 0, 2});
  c.add(Op::kConvert, "pred to f32", {pred({2}, {1, 0})}, [](const auto& a) { return convert(a[0], DType::kF32); },
        {1, 0});
  c.add(Op::kConvert, "u32 to f32", {u32({1}, {0x80000000})}, [](const auto& a) { return convert(a[0], DType::kF32); },
        {2147483648.0});
  c.add(Op::kBitcastConvert, "f32 as u32", {f32({2}, {1, -2.5})},
        [](const auto& a) { return bitcast_convert(a[0], DType::kU32); },
        {static_cast<double>(std::bit_cast<uint32_t>(1.0f)), static_cast<double>(std::bit_cast<uint32_t>(-2.5f))});
}

}  // namespace

std::vector<ForwardCase> elementwise_forward_cases() {
  Cases cases;
  add_unary(cases);
  add_binary(cases);
  add_choices(cases);
  return cases.list;
}

// Constants are printed in three ways: element by element, as bits, or as a splat (one number for all elements).
TEST(Elementwise, ConstantsOfEveryKind) {
  GraphRun run;
  run.output("f32", literal({0.1, -kInf, kInf, 1e-40, 3}, {DType::kF32, {5}}));
  run.output("nan", is_finite(constant(kNan, DType::kF32)));
  run.output("bf16", convert(literal({-kInf, 0.1}, {DType::kBF16, {2}}), DType::kF32));
  run.output("f16", convert(literal({kInf, 0.1}, {DType::kF16, {2}}), DType::kF32));
  run.output("u32", constant(4294967295.0, DType::kU32));
  run.output("i32", literal({-2147483648.0, 7}, {DType::kI32, {2}}));
  run.output("pred", literal({1, 0}, {DType::kPred, {2}}));
  const std::map<std::string, Value> got = run.run();
  EXPECT_EQ(got.at("f32").elements, (Values{0.1f, -kInf, kInf, 1e-40f, 3}));
  EXPECT_EQ(got.at("nan").elements, Values{0});
  EXPECT_EQ(got.at("bf16").elements, (Values{-kInf, bf16_to_f32(f32_to_bf16(0.1f))}));
  EXPECT_EQ(got.at("f16").elements, (Values{kInf, f16_to_f32(f32_to_f16(0.1f))}));
  EXPECT_EQ(got.at("u32").elements, Values{4294967295.0});
  EXPECT_EQ(got.at("i32").elements, (Values{-2147483648.0, 7}));
  EXPECT_EQ(got.at("pred").elements, (Values{1, 0}));
}

// bf16 and f16 do not hold 0.22, so the product is computed in f32. PyTorch computes in the same way.
TEST(Elementwise, ANumberIsNotRoundedToTheDtypeOfTheTensor) {
  Values xs;
  for (int i = 0; i < 128; ++i) xs.push_back((i % 2 == 0 ? 1 : -1) * (1 + i / 128.0));  // bf16 holds these numbers
  GraphRun run;
  const Tensor x = run.input(bf16(count(xs), xs));
  run.output("bf16", x * 0.22);
  run.output("bf16 over", 0.22 / x);
  run.output("bf16 constant", x * constant(0.22, DType::kBF16));
  run.output("f16", convert(x, DType::kF16) * 1.702);
  const std::map<std::string, Value> got = run.run();
  for (size_t i = 0; i < xs.size(); ++i) {
    const float value = static_cast<float>(xs[i]), rounded = bf16_to_f32(f32_to_bf16(0.22f));
    EXPECT_EQ(got.at("bf16").elements[i], bf16_to_f32(f32_to_bf16(value * 0.22f)));
    EXPECT_EQ(got.at("bf16 over").elements[i], bf16_to_f32(f32_to_bf16(0.22f / value)));
    EXPECT_EQ(got.at("bf16 constant").elements[i], bf16_to_f32(f32_to_bf16(value * rounded)));
    EXPECT_EQ(got.at("f16").elements[i], f16_to_f32(f32_to_f16(value * 1.702f)));
  }
  EXPECT_NE(got.at("bf16").elements, got.at("bf16 constant").elements);
}

}  // namespace fettle
