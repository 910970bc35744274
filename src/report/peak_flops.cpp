#include "report/peak_flops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/seconds_since.h"
#include "models/blocks/layers.h"
#include "programs/layouts.h"
#include "runtime/vendors/targets.h"

namespace fettle {
namespace {

// Returns the seconds of the fastest of four n x n x n products on one device, by one of the kernels if `kernels` has
// one for products.
double measure_product(const Devices& devices, const KernelSet& kernels, int64_t n, DType dtype) {
  Program program({}, choose_among(kernels));
  BuildScope scope(program.block());
  const Shape rows{dtype, {1, n, n}}, weight{dtype, {n, n}};
  const Tensor x = program.input("x", rows), y = program.input("y", weight);
  program.output("z", product(nullptr, x, y));
  const Executable executable = devices.client().compile(program.text(), signature_of(program));
  const auto upload = [&](const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(n * n), 0.5F);
    return DeviceBuffer::upload(devices.client(), HostArray::from<float>({DType::kF32, shape.dims}, values).to(dtype),
                                Layout::replicated(shape.dims, 1));
  };
  DeviceBuffer a = upload(rows), b = upload(weight);
  double best = INFINITY;
  for (int i = 0; i < 4; ++i) {
    const Clock::time_point start = Clock::now();
    const std::vector<DeviceBuffer> result = executable.run({&a, &b});
    executable.wait();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

}  // namespace

double data_sheet_flops(const std::string& kind, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16) return 0;
  const Target* target = target_of_kind(kind);
  return target == nullptr ? 0 : target->bf16_tflops * 1e12;
}

double best_product_flops(const std::function<double(int64_t n, DType dtype)>& seconds_of, DType compute) {
  std::vector<DType> ways{compute};
  if (compute != DType::kF32) ways.push_back(DType::kF32);
  double best = 0;
  for (const DType dtype : ways) {
    // Only products of large matrices keep many cores busy, but with few cores such products take long. So the size
    // grows until one product takes more than 4 ms.
    for (int64_t n : {512, 1024, 2048}) {
      const double seconds = seconds_of(n, dtype);
      best = std::max(best, 2.0 * static_cast<double>(n * n * n) / seconds);
      if (seconds > 0.004) break;
    }
  }
  return best;
}

double peak_flops(const Devices& devices, const KernelSet& kernels, DType compute) {
  if (!devices.on_host())
    return static_cast<double>(devices.count()) * data_sheet_flops(devices.client().devices()[0].kind, compute);
  // With several processes, nothing is measured. A measured time decides which product runs next, and the times differ
  // between processes. So the processes would run different products.
  if (devices.local_count() < devices.count()) return 0;
  const auto seconds_of = [&](int64_t n, DType dtype) {
    const double plain = measure_product(devices, {}, n, dtype);
    return kernels.empty() ? plain : std::min(plain, measure_product(devices, kernels, n, dtype));
  };
  return best_product_flops(seconds_of, compute);
}

}  // namespace fettle
