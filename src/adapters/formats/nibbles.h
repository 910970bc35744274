// Defines functions that take codes of 4 bits out of bytes and turn them into values.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

enum class FirstCode { kLowBits, kHighBits };

// Takes the two 4-bit codes out of each byte of bytes_u8 [.., 1], in the order that the format stores them. Returns
// them as [.., 2], in the upper four bits of a byte.
Tensor both_codes(const Tensor& bytes_u8, FirstCode first);

// Selects one of 16 values by the four high bits of a byte. The result is a tree of select ops, which compilers fuse
// with the op that reads the result.
Tensor value_of(const Tensor& nibble_u8, const std::vector<float>& values);

}  // namespace fettle
