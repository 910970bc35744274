#include "programs/arithmetic.h"

#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "graph/ops.h"

namespace fettle {
namespace {

constexpr int64_t kSize = 64;       // rows and columns of the matrices
constexpr double kRounding = 1e-2;  // largest allowed error, relative to the product's norm; TF32 stays below

// Computes x times w; both are [kSize, kSize].
std::vector<double> product(const float* x, const float* w) {
  std::vector<double> out(kSize * kSize);
  for (int64_t row = 0; row < kSize; ++row)
    for (int64_t k = 0; k < kSize; ++k)
      for (int64_t column = 0; column < kSize; ++column)
        out[row * kSize + column] += double{x[row * kSize + k]} * w[k * kSize + column];
  return out;
}

}  // namespace

std::string find_arithmetic_fault(Devices& devices) {
  const int64_t count = devices.count();
  const Partition by_device = count > 1 ? Partition{{{"fsdp"}, {}}} : Partition{};
  const Shape rows{DType::kF32, {count * kSize, kSize}}, square{DType::kF32, {kSize, kSize}};
  Program program(devices.flat_mesh());
  {
    BuildScope scope(program.block());
    const Tensor x = program.input("x", rows, by_device), w = program.input("w", square);
    program.output("y", dot_general(x, w, {.lhs_contracting = {1}, .rhs_contracting = {0}}), by_device);
  }
  const Executable executable = devices.compile(program);

  const HostArray x = trial_numbers(rows, 1), w = trial_numbers(square, 2);
  const std::vector<ArgInfo>& inputs = executable.signature().inputs;
  DeviceBuffer x_there = DeviceBuffer::upload(devices.client(), x, inputs[0].layout);
  DeviceBuffer w_there = DeviceBuffer::upload(devices.client(), w, inputs[1].layout);
  const DeviceBuffer y = std::move(executable.run({&x_there, &w_there}).front());
  for (int i = 0; i < count; ++i) {
    if (!y.is_local(i)) continue;
    const HostArray shard = y.download_shard(i);
    const Box& box = y.layout().boxes[i];
    const double off =
        relative_distance(doubles(shard), product(&x.as<float>()[box.start[0] * kSize], w.as<float>().data()));
    if (!(off <= kRounding))
      return fmt::format(
          "device {} of {} does not compute: its product of two small matrices differs from the right product by "
          "{:.0f} % of the right product's norm",
          i, devices.title(), 100 * off);
  }
  return "";
}

void require_arithmetic(Devices& devices) {
  const std::string fault = find_arithmetic_fault(devices);
  if (fault.empty()) return;
  if (!arithmetic_is_waived())
    throw DeviceError("{}; check the driver, its libraries and the plugin (docs/gpus.md), and try another device",
                      fault);
  warn("{}; FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC is set, so the run continues, but its results are meaningless",
       fault);
}

bool arithmetic_is_waived() {
  return environment_is_on("FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC");
}

}  // namespace fettle
