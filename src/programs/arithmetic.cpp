#include "programs/arithmetic.h"

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "graph/ops.h"

namespace fettle {
namespace {

constexpr int64_t kSize = 64;       // of the matrices
constexpr double kRounding = 1e-2;  // allowed error relative to the norm of a product, also with TF32

// Reproducible pseudo-random numbers in [-1, 1).
std::vector<float> numbers(int64_t count, uint32_t state) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    out.push_back(static_cast<float>(state >> 8) / 8388608.0F - 1);
  }
  return out;
}

// Computes x times w; both are [kSize, kSize].
std::vector<double> product(const float* x, const float* w) {
  std::vector<double> out(kSize * kSize);
  for (int64_t row = 0; row < kSize; ++row)
    for (int64_t k = 0; k < kSize; ++k)
      for (int64_t column = 0; column < kSize; ++column)
        out[row * kSize + column] += double{x[row * kSize + k]} * w[k * kSize + column];
  return out;
}

double relative_distance(std::span<const float> got, const std::vector<double>& wanted) {
  double error = 0, length = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    length += wanted[i] * wanted[i];
  }
  return std::sqrt(error / length);
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

  const std::vector<float> x = numbers(rows.elements(), 1), w = numbers(square.elements(), 2);
  const std::vector<ArgInfo>& inputs = executable.signature().inputs;
  DeviceBuffer x_there = DeviceBuffer::upload(devices.client(), HostArray::from(rows, x), inputs[0].layout);
  DeviceBuffer w_there = DeviceBuffer::upload(devices.client(), HostArray::from(square, w), inputs[1].layout);
  const DeviceBuffer y = std::move(executable.run({&x_there, &w_there}).front());
  for (int i = 0; i < count; ++i) {
    const HostArray shard = y.download_shard(i);
    const Box& box = y.layout().boxes[i];
    const double off = relative_distance(shard.as<float>(), product(&x[box.start[0] * kSize], w.data()));
    if (!(off <= kRounding))
      return fmt::format(
          "device {} of {} does not compute: its product of two small matrices is off by {:.0f} % of the right one's "
          "length",
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
  warn("{}; FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC is set, so the run goes on, and its results mean nothing", fault);
}

bool arithmetic_is_waived() {
  const char* value = std::getenv("FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC");
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

}  // namespace fettle
