// Defines BoxPiece, a contiguous range of one part of a BufferBuilder. Device arrays are filled one BoxPiece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arrays/box.h"

namespace fettle {

struct BoxPiece {
  int part;
  int64_t offset;  // offset in the part's bytes
  Box box;         // the elements, in the global array
};

// Splits `parts` into pieces. A piece has only one index in each of the first `single` dims. It has at most `most`
// bytes, or one element if an element is larger. Elements have `width` bytes. The pieces are in the order of the global
// array, so that files are read sequentially.
std::vector<BoxPiece> pieces_of(const std::vector<Box>& parts, int64_t width, size_t single, int64_t most);

// Returns the box without its first `lead` dims.
Box inner_box(const Box& box, size_t lead);

// Returns a buffer of the calling thread. It is valid until the thread's next call.
std::span<std::byte> staging(int64_t bytes);

}  // namespace fettle
