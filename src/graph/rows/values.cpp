// Defines the op table's rows for ops without operands, and the functions that the other files share.
#include <algorithm>
#include <array>
#include <set>

#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

std::string parameter_text(NodeText&, Printer&) {
  throw InternalError("inputs are printed with their block, not as nodes");
}

std::vector<Shape> parameter_shape(Shapes, const Attributes& a) {
  const Shape& shape = as<ResultShape>(a).shape;
  for (const int64_t dim : shape.dims) check(dim >= 0, "parameter_c1", "{} has a negative dim", shape.to_string());
  return {shape};
}

std::string constant_text(NodeText& n, Printer&) {
  const auto& constant = n.node.get<ConstantValue>();
  const Shape& shape = constant.shape;
  size_t next = 0;
  auto nested = [&](auto& self, int64_t dim) -> std::string {
    if (dim == shape.rank()) return mlir_element((*constant.values)[next++], shape.dtype);
    std::vector<std::string> parts;
    for (int64_t i = 0; i < shape.dims[dim]; ++i) parts.push_back(self(self, dim + 1));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
  const std::string dense = constant.values == nullptr ? mlir_element(constant.splat, shape.dtype) : nested(nested, 0);
  return fmt::format("stablehlo.constant dense<{}> : {}", dense, n.result());
}

std::vector<Shape> constant_shape(Shapes, const Attributes& a) {
  const auto& [shape, splat, values] = as<ConstantValue>(a);
  check(values == nullptr || static_cast<int64_t>(values->size()) == shape.elements(), "constant_c1",
        "{} values do not fit a literal {}", values == nullptr ? 1 : values->size(), shape.to_string());
  return {shape};
}

std::string iota_text(NodeText& n, Printer&) {
  return fmt::format("stablehlo.iota dim = {} : {}", n.node.get<IotaDim>().dim, n.result());
}

std::vector<Shape> iota_shape(Shapes, const Attributes& a) {
  const auto& [shape, dim] = as<IotaDim>(a);
  check(dim >= 0 && dim < shape.rank(), "iota_c1", "there is no dim {} in {}", dim, shape.to_string());
  return {shape};
}

constexpr std::array kValueRows{
    simple_row(Op::kParameter, "parameter", parameter_text, parameter_shape, nullptr, Saved::kNever),
    simple_row(Op::kConstant, "constant", constant_text, constant_shape, nullptr, Saved::kNever),
    simple_row(Op::kIota, "iota", iota_text, iota_shape, nullptr, Saved::kNever),
};

}  // namespace

std::span<const OpRow> values() {
  return kValueRows;
}

void check_count(Shapes operands, size_t count, const char* label) {
  check(operands.size() == count, label, "found {} operands, wanted {}", operands.size(), count);
}

bool in_range_and_unique(const Dims& dims, int64_t rank) {
  std::set<int64_t> seen;
  return std::ranges::all_of(dims, [&](int64_t d) { return d >= 0 && d < rank && seen.insert(d).second; });
}

std::vector<Shape> same_shape(Shapes o, const Attributes&) {
  check(!o.empty(), "identity_c1", "found no operands, wanted one or more");
  return {o[0]};
}

std::vector<bool> all_operands(const Node& node, const std::vector<bool>&) {
  return std::vector<bool>(node.operands.size(), true);
}

std::vector<bool> first_operand(const Node& node, const std::vector<bool>&) {
  std::vector<bool> out(node.operands.size(), false);
  out[0] = true;
  return out;
}

std::string plain_text(NodeText& n, Printer&) {
  return fmt::format("{} {} : {}", n.name(), fmt::join(n.operands, ", "), n.result());
}

std::string typed_text(NodeText& n, Printer&) {
  return fmt::format("{} {} : {}", n.name(), fmt::join(n.operands, ", "), n.signature());
}

}  // namespace fettle::rows
