// Tests the speeds that progress lines compare with: data sheets, and products that are measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "config/recipe.h"
#include "report/peak_flops.h"
#include "run/device_request.h"
#include "runtime/vendors/targets.h"

namespace fettle {
namespace {

TEST(DataSheetFlops, KnowsDriversNames) {
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 80GB HBM3", DType::kBF16), target_named("h100").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA A100-SXM4-40GB", DType::kBF16), target_named("a100-40").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA GB200", DType::kBF16), target_named("gb200").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA GeForce RTX 4090", DType::kF16), target_named("rtx4090").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("AMD Instinct MI300X", DType::kBF16), target_named("mi300x").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 PCIe", DType::kBF16), target_named("h100-pcie").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 NVL", DType::kBF16), 0) << "a slower card of the same name";
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 PCIe MIG 1g.10gb", DType::kBF16), 0) << "a part of a card";
  EXPECT_EQ(data_sheet_flops("NVIDIA H200", DType::kBF16), target_named("h200").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA GH200 480GB", DType::kBF16), 0) << "not an H200";
  EXPECT_EQ(data_sheet_flops("NVIDIA A100 80GB", DType::kBF16), target_named("a100-80").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA RTX A1000", DType::kBF16), 0) << "not an A100";
  EXPECT_EQ(data_sheet_flops("NVIDIA RTX PRO 6000 Blackwell Server Edition", DType::kBF16),
            target_named("rtxpro6000").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("AMD Radeon RX 7900 XTX", DType::kBF16), target_named("rx7900xtx").bf16_tflops * 1e12);
  EXPECT_EQ(data_sheet_flops("NVIDIA H100 80GB HBM3", DType::kF32), 0) << "the table has bf16 only";
  EXPECT_EQ(data_sheet_flops("Some Other GPU", DType::kBF16), 0);
  EXPECT_EQ(data_sheet_flops("", DType::kBF16), 0);
}

// Returns the measured peak when a product takes n^3 / rate seconds, with one rate for f32 and one for bf16.
double best_of(double f32_rate, double bf16_rate, DType compute) {
  return best_product_flops(
      [&](int64_t n, DType dtype) {
        return static_cast<double>(n * n * n) / (dtype == DType::kF32 ? f32_rate : bf16_rate);
      },
      compute);
}

TEST(PeakFlops, TheFastestWayCounts) {
  EXPECT_DOUBLE_EQ(best_of(1e11, 2e11, DType::kBF16), 2 * 2e11) << "a CPU with bfloat16 arithmetic";
  EXPECT_DOUBLE_EQ(best_of(1e11, 3e10, DType::kBF16), 2 * 1e11) << "a CPU without it widens to float32";
  EXPECT_DOUBLE_EQ(best_of(1e11, 3e10, DType::kF16), 2 * 1e11);
  EXPECT_DOUBLE_EQ(best_of(1e11, 9e11, DType::kF32), 2 * 1e11) << "float32 products are not done in fewer bits";
}

TEST(PeakFlops, LargerMatricesAreTriedWhileTheyAreQuick) {
  std::vector<int64_t> sizes;
  best_product_flops(
      [&](int64_t n, DType) {
        sizes.push_back(n);
        return n < 1024 ? 0.001 : 0.1;
      },
      DType::kF32);
  EXPECT_EQ(sizes, (std::vector<int64_t>{512, 1024}));
}

TEST(PeakFlops, TheCpuIsMeasured) {
  Recipe recipe;
  recipe.plugin = "cpu";
  const Devices devices(device_request(recipe));
  const KernelSet kernels = select_kernels("cpu", {"cpu_linear"});
  ASSERT_THAT(kernels, testing::SizeIs(1));
  register_handlers(kernels, devices.client().plugin());
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const KernelSet& used : {KernelSet{}, kernels}) {
      const double flops = peak_flops(devices, used, dtype);
      EXPECT_GT(flops, 1e7);
      EXPECT_LT(flops, 1e16);
    }
  }
}

}  // namespace
}  // namespace fettle
