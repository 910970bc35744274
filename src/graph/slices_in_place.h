// Defines a rewrite for programs of one device: kernels read slices of stacked arrays where the arrays are.
//
// A scan cuts one slice out of each of its xs in every trip. A compiler cannot pass a part of an array to a custom
// call, so it copies the slice first. Weights of all layers are stacked, so without the rewrite each trip copies the
// weights of its layer. After the rewrite, the call gets the whole stack and the number of the slice.
#pragma once

#include <memory>

#include "graph/block.h"

namespace fettle {

// The attribute of a call that reads slices: pairs of an operand's number and the stack's first slice that the loop
// reads, as array<i64>. Such an operand is the stack [slices, ...]. The call has one more operand, the last: an i32
// scalar. The call reads the slice first + scalar of each of these stacks.
inline constexpr const char* kSlicesAttribute = "slices";

// Returns a copy of `block`, which must be pruned. In the copy, calls with `CustomCall::reads_slices` read slices of
// xs in place, also through reshapes. A slice that anything else reads stays as it is, because the loop must cut it out
// in any case. The copy has dead slices and reshapes; prune it again.
std::shared_ptr<Block> read_slices_in_place(const Block& block);

}  // namespace fettle
