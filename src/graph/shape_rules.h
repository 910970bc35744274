// Defines the shape rules of the op table. Each throws InternalError citing the spec's constraint label.
// Source: the StableHLO specification, section of each op.
#pragma once

#include <span>
#include <vector>

#include "graph/block.h"

namespace fettle::shape_rules {

using Shapes = std::span<const Shape>;

std::vector<Shape> same_float(Shapes operands, const Attributes&);   // unary, floats
std::vector<Shape> same_number(Shapes operands, const Attributes&);  // unary, floats or integers
std::vector<Shape> logical_not(Shapes operands, const Attributes&);
std::vector<Shape> is_finite(Shapes operands, const Attributes&);
std::vector<Shape> binary_number(Shapes operands, const Attributes&);
std::vector<Shape> binary_bits(Shapes operands, const Attributes&);  // predicates or integers
std::vector<Shape> compare(Shapes operands, const Attributes&);
std::vector<Shape> select(Shapes operands, const Attributes&);
std::vector<Shape> broadcast_in_dim(Shapes operands, const Attributes&);  // result dims in `high`
std::vector<Shape> concatenate(Shapes operands, const Attributes&);
std::vector<Shape> dynamic_slice(Shapes operands, const Attributes&);  // slice sizes in `high`
std::vector<Shape> dynamic_update_slice(Shapes operands, const Attributes&);
std::vector<Shape> pad(Shapes operands, const Attributes&);
std::vector<Shape> reshape(Shapes operands, const Attributes&);  // result dims in `high`
std::vector<Shape> slice(Shapes operands, const Attributes&);
std::vector<Shape> transpose(Shapes operands, const Attributes&);
std::vector<Shape> dot_general(Shapes operands, const Attributes&);  // result dtype named in `text`, "" = lhs's
std::vector<Shape> reduce(Shapes operands, const Attributes&);
std::vector<Shape> take(Shapes operands, const Attributes&);
std::vector<Shape> take_transpose(Shapes operands, const Attributes&);  // the table's dims but the last in `high`
std::vector<Shape> identity(Shapes operands, const Attributes&);        // the first operand's
std::vector<Shape> place(Shapes operands, const Attributes&);           // x and, perhaps, an f32 scalar
std::vector<Shape> identity_all(Shapes operands, const Attributes&);

}  // namespace fettle::shape_rules
