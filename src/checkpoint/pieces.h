// Defines the pieces in which device arrays are filled: contiguous stretches of a builder's parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arrays/box.h"

namespace fettle {

struct BoxPiece {
  int part;
  int64_t offset;  // in the part's bytes
  Box box;         // in the global array
};

// All of `parts` in pieces of at most `most` bytes, where a dim allows it, in the order they lie in the global array,
// so that files are read through once. The first `single` dims of a piece have one index each; elements are `width`
// bytes.
std::vector<BoxPiece> pieces_of(const std::vector<Box>& parts, int64_t width, size_t single, int64_t most);

// A box without its first `lead` dims.
Box inner_box(const Box& box, size_t lead);

// Memory of this thread's own, until its next call.
std::span<std::byte> staging(int64_t bytes);

}  // namespace fettle
