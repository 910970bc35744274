// Defines the codes of F8_E4M3, the 8-bit floats in which checkpoints store weights: a sign, 4 bits of exponent with
// bias 7, 3 bits of mantissa, no infinities. Source: "FP8 Formats for Deep Learning", arXiv 2209.05433.
#pragma once

#include <cstdint>
#include <vector>

namespace fettle {

inline constexpr float kLargestE4m3 = 448;

// Returns the values of the 256 codes. The codes 0x7f and 0xff are NaN.
const std::vector<float>& e4m3_values();

// Returns the code of the nearest value. If two values are equally near, returns the code with the even mantissa.
// Values beyond the largest finite value become that value. NaN stays NaN.
uint8_t e4m3_code(float value);

}  // namespace fettle
