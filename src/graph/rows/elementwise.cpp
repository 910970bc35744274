// Defines the op table's rows for elementwise ops.
#include <array>
#include <cmath>
#include <numbers>

#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

// Unary ops.

std::vector<Shape> float_shape(Shapes o, const Attributes&) {
  check_count(o, 1, "unary_c1");
  check(is_float(o[0].dtype), "unary_i1", "found {}, wanted a float", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> number_shape(Shapes o, const Attributes&) {
  check_count(o, 1, "unary_c1");
  check(o[0].dtype != DType::kPred, "unary_i1", "found {}, wanted a number", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> not_shape(Shapes o, const Attributes&) {
  check_count(o, 1, "not_c1");
  check(!is_float(o[0].dtype), "not_i1", "found {}, wanted an integer or i1", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> is_finite_shape(Shapes o, const Attributes& a) {
  float_shape(o, a);
  return {o[0].with_dtype(DType::kPred)};
}

// StableHLO has no erf; its extension CHLO has it.
std::string erf_text(NodeText& n, Printer&) {
  return fmt::format("chlo.erf {} : {} -> {}", n.operands[0], n.result(), n.result());
}

constexpr OpRow unary(Op op, std::string_view name, Vjp vjp) {
  return simple_row(op, name, plain_text, float_shape, vjp);
}

constexpr std::array kUnary{
    simple_row(Op::kAbs, "abs", plain_text, number_shape,
               [](const VjpArgs& a) -> Tensors { return {ct(a) * sign(x(a))}; }),
    unary(Op::kCosine, "cosine", [](const VjpArgs& a) -> Tensors { return {-(ct(a) * sine(x(a)))}; }),
    simple_row(
        Op::kErf, "erf", erf_text, float_shape,
        [](const VjpArgs& a) -> Tensors { return {ct(a) * exp(-(x(a) * x(a))) * (2 / std::sqrt(std::numbers::pi))}; }),
    unary(Op::kExponential, "exponential", [](const VjpArgs& a) -> Tensors { return {ct(a) * out(a)}; }),
    unary(Op::kFloor, "floor", nullptr),
    simple_row(Op::kIsFinite, "is_finite", typed_text, is_finite_shape, nullptr),
    unary(Op::kLog, "log", [](const VjpArgs& a) -> Tensors { return {ct(a) / x(a)}; }),
    unary(Op::kLogistic, "logistic", [](const VjpArgs& a) -> Tensors { return {ct(a) * (out(a) * (1.0 - out(a)))}; }),
    simple_row(Op::kNegate, "negate", plain_text, number_shape, [](const VjpArgs& a) -> Tensors { return {-ct(a)}; }),
    simple_row(Op::kNot, "not", plain_text, not_shape, nullptr),
    unary(Op::kRsqrt, "rsqrt", [](const VjpArgs& a) -> Tensors { return {ct(a) * (out(a) / x(a)) * -0.5}; }),
    simple_row(Op::kSign, "sign", plain_text, number_shape, nullptr),
    unary(Op::kSine, "sine", [](const VjpArgs& a) -> Tensors { return {ct(a) * cosine(x(a))}; }),
    unary(Op::kSqrt, "sqrt", [](const VjpArgs& a) -> Tensors { return {ct(a) / out(a) * 0.5}; }),
    unary(Op::kTanh, "tanh", [](const VjpArgs& a) -> Tensors { return {ct(a) * (1.0 - out(a) * out(a))}; }),
};

// Binary ops.

std::vector<Shape> two_numbers_shape(Shapes o, const Attributes&) {
  check_count(o, 2, "binary_c1");
  check(o[0] == o[1], "binary_c1", "found operands {} and {}, wanted the same dtype and dims", o[0].to_string(),
        o[1].to_string());
  check(o[0].dtype != DType::kPred, "binary_i1", "found {}, wanted numbers", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> bits_shape(Shapes o, const Attributes&) {
  check_count(o, 2, "binary_c1");
  check(o[0] == o[1], "binary_c1", "found operands {} and {}, wanted the same dtype and dims", o[0].to_string(),
        o[1].to_string());
  check(!is_float(o[0].dtype), "binary_i1", "found {}, wanted integers or i1", o[0].to_string());
  return {o[0]};
}

Tensor where(const Tensor& pred, const Tensor& value) {
  return select(pred, value, zeros_like(value));
}

// Returns the cotangents of the operands of a maximum or minimum. If both operands are equal, the first one gets the
// whole cotangent.
Tensors larger_vjp(const VjpArgs& a, Direction direction) {
  const Tensor first = compare(x(a), direction, y(a));
  return {where(first, ct(a)), where(logical_not(first), ct(a))};
}

constexpr OpRow binary(Op op, std::string_view name, Vjp vjp) {
  return simple_row(op, name, plain_text, two_numbers_shape, vjp);
}
constexpr OpRow bits(Op op, std::string_view name) {
  return simple_row(op, name, plain_text, bits_shape, nullptr);
}

constexpr std::array kBinary{
    binary(Op::kAdd, "add",
           [](const VjpArgs& a) -> Tensors {
             return {ct(a), ct(a)};
           }),
    bits(Op::kAnd, "and"),
    binary(Op::kDivide, "divide",
           [](const VjpArgs& a) -> Tensors {
             return {a.active[0] ? ct(a) / y(a) : Tensor{}, a.active[1] ? -(ct(a) * (out(a) / y(a))) : Tensor{}};
           }),
    binary(Op::kMaximum, "maximum", [](const VjpArgs& a) { return larger_vjp(a, Direction::kGE); }),
    binary(Op::kMinimum, "minimum", [](const VjpArgs& a) { return larger_vjp(a, Direction::kLE); }),
    binary(Op::kMultiply, "multiply",
           [](const VjpArgs& a) -> Tensors {
             return {a.active[0] ? ct(a) * y(a) : Tensor{}, a.active[1] ? ct(a) * x(a) : Tensor{}};
           }),
    bits(Op::kOr, "or"),
    binary(Op::kPower, "power",
           [](const VjpArgs& a) -> Tensors {
             return {a.active[0] ? ct(a) * y(a) * power(x(a), y(a) - 1.0) : Tensor{},
                     a.active[1] ? ct(a) * out(a) * log(x(a)) : Tensor{}};
           }),
    binary(Op::kRemainder, "remainder", nullptr),
    bits(Op::kShiftLeft, "shift_left"),
    bits(Op::kShiftRightLogical, "shift_right_logical"),
    binary(Op::kSubtract, "subtract",
           [](const VjpArgs& a) -> Tensors {
             return {ct(a), -ct(a)};
           }),
    bits(Op::kXor, "xor"),
};

// Comparison, choice, conversion.

std::string compare_text(NodeText& n, Printer&) {
  static constexpr const char* kDirections[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  const DType dtype = n.node.operands[0].dtype();
  const char* kind = is_float(dtype)                                            ? "FLOAT"
                     : dtype == DType::kPred || stablehlo_name(dtype)[0] == 'u' ? "UNSIGNED"
                                                                                : "SIGNED";
  const char* direction = kDirections[static_cast<size_t>(n.node.get<Comparison>().direction)];
  return fmt::format("{} {}, {}, {}, {} : {}", n.name(), direction, n.operands[0], n.operands[1], kind, n.signature());
}

std::vector<Shape> compare_shape(Shapes o, const Attributes&) {
  check_count(o, 2, "compare_c1");
  check(o[0] == o[1], "compare_c1", "found operands {} and {}, wanted the same dtype and dims", o[0].to_string(),
        o[1].to_string());
  return {o[0].with_dtype(DType::kPred)};
}

std::string select_text(NodeText& n, Printer&) {
  return fmt::format("{} {} : {}, {}", n.name(), fmt::join(n.operands, ", "), n.types[0], n.types[1]);
}

std::vector<Shape> select_shape(Shapes o, const Attributes&) {
  check_count(o, 3, "select_c1");
  check(o[0] == o[1].with_dtype(DType::kPred), "select_c1",
        "pred is {} and on_true is {}; wanted a pred of dtype i1 with the dims of on_true", o[0].to_string(),
        o[1].to_string());
  check(o[1] == o[2], "select_c2", "on_true {} differs from on_false {}", o[1].to_string(), o[2].to_string());
  return {o[1]};
}

std::vector<Shape> convert_shape(Shapes o, const Attributes& a) {
  check_count(o, 1, "convert_c1");
  return {o[0].with_dtype(as<ResultDtype>(a).dtype)};
}

std::vector<Shape> bitcast_shape(Shapes o, const Attributes& a) {
  const std::vector<Shape> out = convert_shape(o, a);
  check(byte_size(out[0].dtype) == byte_size(o[0].dtype), "bitcast_convert_c1",
        "the elements of {} and {} differ in width", o[0].to_string(), out[0].to_string());
  return out;
}

// The result of a conversion to a wider dtype, such as bf16 to f32, is computed again, because saving the operand takes
// less memory.
Saved convert_saved(const Node& node) {
  return node.operands[0].shape().bytes() < node.results[0].bytes() ? Saved::kNever : Saved::kAsValue;
}

constexpr std::array kOthers{
    simple_row(Op::kCompare, "compare", compare_text, compare_shape, nullptr),
    simple_row(Op::kSelect, "select", select_text, select_shape,
               [](const VjpArgs& a) -> Tensors {
                 return {Tensor{}, where(x(a), ct(a)), where(logical_not(x(a)), ct(a))};
               }),
    simple_row(
        Op::kConvert, "convert", typed_text, convert_shape,
        [](const VjpArgs& a) -> Tensors { return {is_float(x(a).dtype()) ? convert(ct(a), x(a).dtype()) : Tensor{}}; },
        convert_saved),
    simple_row(Op::kBitcastConvert, "bitcast_convert", typed_text, bitcast_shape, nullptr),
};

}  // namespace

std::span<const OpRow> elementwise() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all(kUnary.begin(), kUnary.end());
    all.insert(all.end(), kBinary.begin(), kBinary.end());
    all.insert(all.end(), kOthers.begin(), kOthers.end());
    return all;
  }();
  return rows;
}

}  // namespace fettle::rows
