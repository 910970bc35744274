#include "report/peak_flops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/seconds_since.h"
#include "graph/ops.h"
#include "programs/layouts.h"
#include "runtime/vendors/targets.h"

namespace fettle {
namespace {

// Returns the seconds of the fastest of four n x n x n products on one device.
double measure_product(const Devices& devices, int64_t n, DType dtype) {
  Program program;
  BuildScope scope(program.block());
  const Shape shape{dtype, {n, n}};
  const Tensor x = program.input("x", shape), y = program.input("y", shape);
  program.output("z", dot_general(x, y, {.lhs_contracting = {1}, .rhs_contracting = {0}}));
  const Executable executable = devices.client().compile(program.text(), signature_of(program));
  const HostArray values = HostArray::from<float>({DType::kF32, shape.dims}, std::vector<float>(n * n, 0.5f)).to(dtype);
  DeviceBuffer a = DeviceBuffer::upload(devices.client(), values, Layout::replicated(shape.dims, 1));
  DeviceBuffer b = DeviceBuffer::upload(devices.client(), values, Layout::replicated(shape.dims, 1));
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

double peak_flops(const Devices& devices, DType compute) {
  if (!devices.on_host())
    return static_cast<double>(devices.count()) * data_sheet_flops(devices.client().devices()[0].kind, compute);
  // With several processes, nothing is measured. A measured time decides which product runs next, and the times differ
  // between processes. So the processes would run different products.
  if (devices.local_count() < devices.count()) return 0;
  return best_product_flops([&](int64_t n, DType dtype) { return measure_product(devices, n, dtype); }, compute);
}

}  // namespace fettle
