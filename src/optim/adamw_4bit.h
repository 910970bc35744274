// Defines AdamW with block-wise 4-bit state: torchao's AdamW4bit. Source: Li et al. 2023, with torchao's maps.
#pragma once

#include <array>

#include "optim/optimizer.h"

namespace fettle {

// Returns the values of codes 0 to 15, in rising order. The map for m (`is_signed`) has values of both signs. The map
// for v has 1/16, 2/16, ... 1.
const std::array<double, 16>& four_bit_map(bool is_signed);

// Returns whether the weight's state has 4 bits. It has 4 bits if a layer has at least 4096 elements, and their number
// is a multiple of `block`, the size of a block. As in torchao, this also applies to embeddings. All other weights have
// the state of adamw.h.
bool has_four_bits(const OptimWeight& weight, int64_t block);

// State m and v, each as "<name>_codes" and "<name>_absmax". The codes are u8, two in a byte, the first one in the high
// bits. They have the weight's shape with half as many columns. If the number of columns is odd, all codes of a layer
// are in one dim. The absmax values are f32: the largest magnitude in each block of elements. `block_size` (in
// optim_args) is the size of a block.
UpdateRule adamw_4bit_rule();

}  // namespace fettle
