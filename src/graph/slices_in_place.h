// Defines a rewrite for programs of one device: kernels read slices of stacked arrays where the arrays are.
//
// A scan cuts one slice out of each of its xs in every trip. A compiler cannot pass a part of an array to a custom
// call, so it copies the slice first. Weights of all layers are stacked, so without the rewrite each trip copies the
// weights of its layer. After the rewrite, the call gets the whole stack and the number of the slice.
#pragma once

#include <memory>

#include "graph/block.h"

namespace fettle {

// The attribute of a call that reads slices: an array<i64> with a pair (operand, first) for each stack that the call
// reads. `operand` is the number of the call's operand that is the stack [slices, ...]. `first` is the first slice of
// this stack that the loop reads. The call has an additional last operand, an i32 scalar: the index of the trip. The
// call reads slice first + index of each of these stacks.
inline constexpr const char* kSlicesAttribute = "slices";

// Returns a copy of `block`, which must be pruned. In the copy, calls with `CustomCall::reads_slices` read slices of
// xs in place, also through reshapes. If anything else reads a slice, the loop must cut out this slice in any case, so
// no call reads it in place. The copy has dead slices and reshapes; prune it again.
std::shared_ptr<Block> read_slices_in_place(const Block& block);

}  // namespace fettle
