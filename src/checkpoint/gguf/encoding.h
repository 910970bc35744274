// Defines Encoding: how a GGUF file stores the elements of a tensor. The elements are in blocks. Also, rows or columns
// may be in another order than in Hugging Face's checkpoint, a constant may have been added to the values, or the file
// may have the number -exp(x) instead of x.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arrays/box.h"
#include "base/arrays/shape.h"
#include "checkpoint/gguf/block_types.h"

namespace fettle {

struct TensorEntry;

// llama.cpp stores the rows of some weights in another order than Hugging Face. Hugging Face's row (o, a, b, i) is row
// (o, b, a, i) of the file, for a < first, b < second, i < inner. The outermost index o has no limit. The rows before
// `begin` keep their places and are not counted.
struct RowSwap {
  int64_t first = 1, second = 1, inner = 1, begin = 0;

  bool swaps() const { return first > 1 && second > 1; }
  int64_t stored(int64_t row) const {
    if (row < begin) return row;
    const int64_t b = (row - begin) / inner % second, a = (row - begin) / (inner * second) % first;
    return row + ((b * first + a) - (a * second + b)) * inner;
  }
};

struct Encoding {
  const BlockType* type = nullptr;  // null: the bytes are elements of the tensor's dtype
  RowSwap swap = {};
  RowSwap column_swap = {};      // like `swap`, for the columns
  float shift = 0;               // added to each stored value
  bool log_of_negative = false;  // the value is log(-stored value)

  explicit operator bool() const { return type != nullptr; }
};

// Writes the elements of `box` to `out`, dense, as the float dtype `to`. `data` points to the entry's first byte.
// Values are computed in f32 and rounded to nearest even. Reads only the rows of the box.
void read_encoded(const TensorEntry& entry, const std::byte* data, const Box& box, DType to, std::byte* out);

}  // namespace fettle
