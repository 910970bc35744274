// Defines block-wise 8-bit numbers for optimizer state: a weight's elements in row-major order, 256 a block, each block
// scaled by its largest magnitude and rounded to the nearest of 256 values of a dynamic map.
// Source: Dettmers et al. 2022, with the map, the blocks and the smallest size of bitsandbytes.
#pragma once

#include "adapters/dynamic_map.h"
#include "optim/optimizer.h"

namespace fettle {

// Smaller weights (of one layer) keep f32 state, and embeddings of any size, as Hugging Face's Trainer has it.
constexpr int64_t kSmallestQuantized = 4096;
bool is_quantized(const OptimWeight& weight);

// Arrays "<name>_codes" (u8, the weight's shape) and "<name>_absmax" (f32, one a block).
std::vector<OptimState> quantized_state(const std::string& name, const OptimWeight& weight);

struct Quantized {
  Tensor codes, absmax;
};
// Between f32 in the weight's shape and the two arrays.
Tensor dequantize(const Quantized& state, const OptimWeight& weight, DynamicMap map);
Quantized quantize(const Tensor& value, const OptimWeight& weight, DynamicMap map);

}  // namespace fettle
