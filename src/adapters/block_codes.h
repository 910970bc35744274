// Defines the values that codes of quantised weights stand for, and the way between floats and codes in host memory.
// After bitsandbytes; see models/quantisation.h for the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/quantisation.h"

namespace fettle {

// Of codes 0 to 15, as bitsandbytes' tables have them.
const std::vector<float>& values_of(Quantisation::Type type);
// Of codes 0 to 255 of the absmax in nested blocks: its signed dynamic map.
const std::vector<float>& nested_values();

// Codes of whole blocks of 64 `values` but for the last, which may be shorter (its rest becomes code of 0): half a byte
// an element to `codes`, 32 bytes a block; one absmax a block.
void quantise_blocks(Quantisation::Type type, std::span<const float> values, std::byte* codes, float* absmax);
void dequantise_blocks(Quantisation::Type type, const std::byte* codes, const float* absmax, std::span<float> values);

// The absmax of a whole weight in 8 bits.
struct NestedAbsmax {
  std::vector<uint8_t> codes;
  std::vector<float> absmax;  // one for 256 codes
  float offset = 0;
};
NestedAbsmax quantise_absmax(std::span<const float> absmax);
// absmax [first, first + out.size()) of the weight.
void dequantise_absmax(const NestedAbsmax& nested, int64_t first, std::span<float> out);

// int8: rows of `columns` elements, one absmax a row.
void quantise_rows(std::span<const float> values, int64_t columns, int8_t* codes, float* absmax);

}  // namespace fettle
