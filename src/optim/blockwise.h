// Defines block-wise 8-bit numbers for optimizer state. The elements of a layer, in row-major order, form blocks of
// 256. The elements of a block are divided by the block's largest magnitude (absmax), and rounded to the nearest of the
// 256 values of a dynamic map. Source: Dettmers et al. 2022. The map, the blocks and kSmallestQuantized are those of
// bitsandbytes.
#pragma once

#include "adapters/dynamic_map.h"
#include "optim/optimizer.h"

namespace fettle {

// The smallest number of elements per layer for which a weight has 8-bit state. Smaller weights, and all embeddings,
// have f32 state, as in Hugging Face's Trainer.
constexpr int64_t kSmallestQuantized = 4096;
bool has_8bit_state(const OptimWeight& weight);

// Returns the arrays "<name>_codes" (u8, the weight's shape) and "<name>_absmax" (f32, one per block).
std::vector<OptimState> quantized_state(const std::string& name, const OptimWeight& weight);

struct Quantized {
  Tensor codes, absmax;
};
// dequantize() returns f32 values in the weight's shape, and quantize() does the reverse.
Tensor dequantize(const Quantized& state, const OptimWeight& weight, DynamicMap map);
Quantized quantize(const Tensor& value, const OptimWeight& weight, DynamicMap map);

}  // namespace fettle
