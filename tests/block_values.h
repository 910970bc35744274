// Defines through_codes(), which gives weights the values that they have in 4 or 8 bits.
#pragma once

#include <span>
#include <vector>

#include "adapters/block_codes.h"
#include "models/quantisation.h"

namespace fettle {

// Quantises a matrix and dequantises it again, in place. Each row of the matrix has `columns` elements.
inline void through_codes(Quantisation format, std::span<float> values, int64_t columns) {
  if (!format.four_bits()) {
    std::vector<int8_t> codes(values.size());
    std::vector<float> absmax(values.size() / static_cast<size_t>(columns));
    quantise_rows(values, columns, codes.data(), absmax.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] = codes[i] * (absmax[i / static_cast<size_t>(columns)] / 127);
    return;
  }
  const size_t blocks = (values.size() + 63) / 64;
  std::vector<std::byte> codes(blocks * 32);
  std::vector<float> absmax(blocks);
  quantise_blocks(format.type, values, codes.data(), absmax.data());
  if (format.nested) dequantise_absmax(quantise_absmax(absmax), 0, absmax);
  const std::vector<float>& table = values_of(format.type);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto two = static_cast<uint8_t>(codes[i / 2]);
    values[i] = table[i % 2 == 0 ? two >> 4 : two & 15] * absmax[i / 64];
  }
}

}  // namespace fettle
