#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "checkpoint/convert.h"

namespace fettle {
namespace {

TEST(Convert, EveryTwoFloatTypesConvertLikeSingleElements) {
  std::vector<float> values{0, -0.0f, 1, -2.5f, 3.14159f, 65504, 70000, 1e-8f, 1e38f, 3.4e38f, NAN, -INFINITY};
  values.resize(3000);
  for (size_t i = 12; i < values.size(); ++i)
    values[i] = std::ldexp(static_cast<float>(i) / 1024, static_cast<int>(i % 60) - 30);
  const std::vector<DType> floats{DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  const HostArray f32 = HostArray::from({DType::kF32, {static_cast<int64_t>(values.size())}}, values);
  for (DType from : floats) {
    for (DType to : floats) {
      const HostArray source = f32.to(from);
      const HostArray wanted = source.to(to);
      HostArray got(source.shape().with_dtype(to));
      convert_elements(source.data(), from, got.data(), to, source.shape().elements());
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(wanted.bytes())), 0)
          << stablehlo_name(from) << " to " << stablehlo_name(to);
    }
  }
}

TEST(Convert, UnalignedBytesConvert) {
  const std::vector<float> values{1.5f, -2, 300};
  std::vector<std::byte> source(1 + 12), target(1 + 6);
  std::memcpy(source.data() + 1, values.data(), 12);
  convert_elements(source.data() + 1, DType::kF32, target.data() + 1, DType::kBF16, 3);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(load_float(target.data() + 1, DType::kBF16, i), values[static_cast<size_t>(i)]);
}

TEST(Convert, IntegersOnlyCopy) {
  const std::vector<int32_t> values{1, -2};
  std::vector<int32_t> out(2);
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  convert_elements(source, DType::kI32, reinterpret_cast<std::byte*>(out.data()), DType::kI32, 2);
  EXPECT_EQ(out, values);
  EXPECT_THROW(convert_elements(source, DType::kI32, reinterpret_cast<std::byte*>(out.data()), DType::kF32, 2),
               InternalError);
}

}  // namespace
}  // namespace fettle
