// Declares the groups of the op table's rows, and the functions that their files share.
//
// Functions in these files: <op>_text spells the op, <op>_shape is the shape rule, <op>_vjp the gradient, <op>_flops
// the FLOPs. The shape rules follow the section of each op in the StableHLO specification.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "graph/print.h"

namespace fettle::rows {

using Tensors = std::vector<Tensor>;
using Shapes = std::span<const Shape>;

std::span<const OpRow> values();       // parameter, constant, iota
std::span<const OpRow> elementwise();  // arithmetic, comparison, choice, conversion
std::span<const OpRow> shape();        // broadcast, reshape, transpose, slices, padding, concatenation
std::span<const OpRow> dot();          // matrix products
std::span<const OpRow> gather();       // reductions; gather and scatter: read and add rows that ids choose
std::span<const OpRow> structure();    // ops that return their operands: memory, sharding, order, gradients
std::span<const OpRow> collective();   // moves between devices
std::span<const OpRow> call();         // custom calls
std::span<const OpRow> loop();         // scan

std::vector<bool> all_operands(const Node& node, const std::vector<bool>& live);
std::vector<bool> first_operand(const Node& node, const std::vector<bool>& live);

// Makes the table row of an op that needs all its operands and whose arithmetic is not counted.
constexpr OpRow simple_row(Op op, std::string_view name, Spell spell, ShapeRule shape, Vjp vjp,
                           SavedRule saved = Saved::kAsValue) {
  return {.op = op,
          .name = name,
          .spell = spell,
          .shape = shape,
          .vjp = vjp,
          .flops = nullptr,
          .needs = all_operands,
          .saved = saved};
}

// Returns the table row of an op whose result is a view (OpRow::view).
constexpr OpRow view_row(OpRow row) {
  row.view = true;
  return row;
}

// Unless `ok`, throws InternalError with `label`, which names the op and the constraint in the specification
// ("transpose_c2").
template <typename... Args>
void check(bool ok, const char* label, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw InternalError("[{}] {}", label, fmt::format(format, std::forward<Args>(args)...));
}
void check_count(Shapes operands, size_t count, const char* label);
bool in_range_and_unique(const Dims& dims, int64_t rank);

// Returns the first operand's shape.
std::vector<Shape> same_shape(Shapes operands, const Attributes&);

// Formats an op whose operands and result have one type: "stablehlo.add %0, %1 : tensor<2xf32>".
std::string plain_text(NodeText& node, Printer&);
// Formats an op with the types of all values: "stablehlo.convert %0 : (tensor<2xf32>) -> tensor<2xbf16>".
std::string typed_text(NodeText& node, Printer&);

// Returns the dtype in which a VJP adds up floats of `dtype`: at least f32. A sum of thousands of 16-bit floats that is
// rounded after each addition loses most of its digits.
inline DType sum_dtype(DType dtype) {
  return byte_size(dtype) < byte_size(DType::kF32) ? DType::kF32 : dtype;
}

// Accessors for parts of a VJP's arguments.
inline const Tensor& ct(const VjpArgs& a) {
  return a.cotangents[0];
}
inline const Tensor& x(const VjpArgs& a) {
  return a.operands[0];
}
inline const Tensor& y(const VjpArgs& a) {
  return a.operands[1];
}
inline const Tensor& out(const VjpArgs& a) {
  return a.results[0];
}

}  // namespace fettle::rows
