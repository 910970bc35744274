// Defines the float values of quantised codes, and the conversion between floats and codes in host memory.
// models/quantisation.h describes the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/quantisation.h"

namespace fettle {

// Returns the values of codes 0 to 15 of nf4, fp4 (both from bitsandbytes' tables) or mxfp4 (from its specification).
const std::vector<float>& values_of(Quantisation::Type type);
// Returns the factor for each byte (0 to 255) of mxfp4's scales: 2^(byte - 127).
const std::vector<float>& mxfp4_scales();
// Returns the values of the 256 codes of a nested absmax: bitsandbytes' signed dynamic map.
const std::vector<float>& nested_values();

// Quantises `values` to nf4 or fp4 in blocks of 64. Writes 32 bytes per block to `codes`, with two codes per byte, the
// first in the high bits, and writes one absmax per block. If the last block is shorter, its unused codes are the code
// of 0.
void quantise_blocks(Quantisation::Type type, std::span<const float> values, std::byte* codes, float* absmax);

// The absmax values of a whole weight, stored in 8 bits (nested quantisation).
struct NestedAbsmax {
  std::vector<uint8_t> codes;
  std::vector<float> absmax;  // one for each block of 256 codes
  float offset = 0;           // the mean, which is subtracted before the values become codes
};
NestedAbsmax quantise_absmax(std::span<const float> absmax);
// Writes the weight's absmax values [first, first + out.size()) to `out`.
void dequantise_absmax(const NestedAbsmax& nested, int64_t first, std::span<float> out);

// Quantises rows of `columns` elements to int8. Writes one absmax per row.
void quantise_rows(std::span<const float> values, int64_t columns, int8_t* codes, float* absmax);

}  // namespace fettle
