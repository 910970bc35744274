// Tests the codes of 8-bit floats: the value of a code gets this code, and any other number gets the code of the
// nearest value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/arrays/e4m3.h"

namespace fettle {
namespace {

TEST(E4m3, EveryValueHasItsCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_values()[static_cast<size_t>(code)];
    if (std::isnan(value))
      EXPECT_EQ(code % 128, 127);
    else
      EXPECT_EQ(e4m3_code(value), code) << value;
  }
  EXPECT_EQ(e4m3_values()[0x7e], kLargestE4m3);
  EXPECT_EQ(e4m3_values()[0x01], std::ldexp(1.0F, -9));
  EXPECT_EQ(e4m3_code(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

TEST(E4m3, ValuesBetweenCodesBecomeTheNearestAndTiesTheEvenOne) {
  for (uint8_t code = 0; code < 0x7e; ++code) {
    const float here = e4m3_values()[code], next = e4m3_values()[code + 1U], middle = (here + next) / 2;
    EXPECT_EQ(e4m3_code(middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(e4m3_code(std::nextafter(middle, here)), code) << middle;
    EXPECT_EQ(e4m3_code(std::nextafter(middle, next)), code + 1) << middle;
    EXPECT_EQ(e4m3_code(-std::nextafter(middle, next)), (code + 1) | 0x80) << middle;
  }
}

TEST(E4m3, LargeValuesBecomeTheLargest) {
  for (const float value : {449.0F, 1e6F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(e4m3_code(value), 0x7e) << value;
    EXPECT_EQ(e4m3_code(-value), 0xfe) << value;
  }
}

}  // namespace
}  // namespace fettle
