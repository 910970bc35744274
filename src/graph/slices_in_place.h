// Defines a rewrite for programs of one device: kernels read and write slices of stacked arrays where the arrays are.
//
// A scan cuts one slice out of each of its xs in every trip, and writes one slice of each of its stacked results. A
// compiler cannot pass a part of an array to a custom call, so it copies the slice. Weights of all layers and saved
// values are stacked, so without the rewrite each trip copies the weights of its layer and the values that it saves.
// After the rewrite, the call gets the whole stack and the number of the slice.
#pragma once

#include <memory>

#include "graph/block.h"

namespace fettle {

// The attribute of a call that reads slices: an array<i64> with a pair (operand, first) for each stack that the call
// reads. `operand` is the number of the call's operand that is the stack [slices, ...]. `first` is the first slice of
// this stack that the loop reads. The call reads slice first + index of each of these stacks.
inline constexpr const char* kSlicesAttribute = "slices";

// The attribute of a call that writes slices: an array<i64> with the number of each result that is a whole stack. The
// call writes slice `index` of it and leaves its other slices as they are. For each of these results, in this order,
// the call has an operand after its own, which is the stack before the call, in the same memory (CustomCall::aliases).
//
// A call with one of these attributes has an additional last operand, an i32 scalar: the index of the trip.
inline constexpr const char* kWrittenSlicesAttribute = "written_slices";

// The target of a call that writes nothing: its results are memory with any content. The attribute `loop`, an i64,
// differs between the calls of a block, so that a compiler does not make one call of them. The operands are not read.
// They are values that differ from trip to trip of an enclosing loop. Otherwise, a compiler would move the call out of
// this loop, keep its results, and copy them in each trip.
inline constexpr const char* kUnwrittenTarget = "fettle_unwritten_1";

// Returns a copy of `block`, which must be pruned. In the copy, calls with `CustomCall::takes_slices` read slices of xs
// in place, also through reshapes. If anything else reads a slice, the loop must cut out this slice in any case, so no
// call reads it in place.
//
// If such a call computes slices of a loop's stacked results, it writes them in place, and other calls with
// `takes_slices` read them where they are. All stacked results of this loop become carries, which begin as unwritten
// memory, or as zeros if the loop may end early. They also become carries if the loop has such a call and cannot end
// early, since a compiler would fill them with zeros first.
//
// The copy has dead slices and reshapes; prune it again.
std::shared_ptr<Block> use_slices_in_place(const Block& block);

}  // namespace fettle
