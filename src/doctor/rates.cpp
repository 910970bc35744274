#include "doctor/rates.h"

#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "base/error.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "graph/ops.h"

namespace fettle {
namespace {

constexpr int kProducts = 8;     // products that a program computes one after another
constexpr double kEnough = 0.3;  // seconds of measuring

// Sizes of the measured arrays; smaller on the CPU.
struct Sizes {
  int64_t matrix, array_bytes;
};
Sizes sizes_for(const Devices& devices) {
  if (devices.on_host()) return {512, 64'000'000};
  const int64_t limit = devices.memory().limit;
  return {4096, limit > 0 ? std::min<int64_t>(512'000'000, limit / 8 / 4096 * 4096) : 512'000'000};
}

Partition over_devices(const Devices& devices, size_t rank) {
  if (devices.count() == 1) return {};
  Partition partition{std::vector<std::vector<std::string>>(rank)};
  partition.dims[0] = {"fsdp"};
  return partition;
}

// Returns the mean seconds of `call`. Runs `call` once to warm up, and then often enough for a stable mean.
template <typename Call>
double seconds_of(Call call) {
  call();
  const auto start = Clock::now();
  int calls = 0;
  double seconds = 0;
  while (seconds < kEnough) {
    call();
    ++calls;
    seconds = seconds_since(start);
  }
  return seconds / calls;
}

// Returns the mean seconds of one execution of the program that `build` builds. The program has one input.
template <typename Build>
double seconds_of_program(Devices& devices, const HostArray& value, const Partition& in, const Partition& out,
                          Build build) {
  Program program(devices.flat_mesh());
  {
    BuildScope scope(program.block());
    program.output("y", build(program, program.input("x", value.shape(), in)), out);
  }
  const Executable executable = devices.compile(program);
  DeviceBuffer x = DeviceBuffer::upload(devices.client(), value, executable.signature().inputs[0].layout);
  return seconds_of([&] {
    const std::vector<DeviceBuffer> results = executable.run({&x});
    executable.wait();
  });
}

std::string rate_text(double bytes_per_s) {
  return size_text(static_cast<int64_t>(bytes_per_s)) + "/s";
}

std::string on_each(const Devices& devices) {
  return devices.count() == 1 ? "" : " on each device, all at the same time";
}

}  // namespace

Finding measure_products(Devices& devices, DType dtype) {
  const int64_t size = sizes_for(devices).matrix;
  // Each device has one of these matrices, and repeatedly multiplies by this matrix. The elements are random numbers:
  // if they were zeros, the devices would need less power and run faster than in training.
  const HostArray x =
      trial_numbers({dtype, {devices.count(), size, size}}, 1, std::sqrt(3.0F / static_cast<float>(size)));
  const Partition own = over_devices(devices, 3);
  const double seconds = seconds_of_program(devices, x, own, own, [&](Program&, const Tensor& input) {
    Tensor y = input;
    for (int i = 0; i < kProducts; ++i)
      y = dot_general(
          y, input, {.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {1}}, dtype);
    return y;
  });
  const double rate = 2.0 * kProducts * std::pow(static_cast<double>(size), 3) / seconds;
  const std::string check = fmt::format("matmul {}", dtype == DType::kBF16 ? "bf16" : "f32");
  return {check,
          Verdict::kGood,
          fmt::format("{:.3g} TFLOP/s{} ({} x {} matrices)", rate / 1e12, on_each(devices), size, size),
          "",
          {{"flops_per_s", rate}, {"size", size}}};
}

Finding measure_memory(Devices& devices) {
  const int64_t elements = sizes_for(devices).array_bytes / 4;
  const HostArray x = HostArray::zeros({DType::kF32, {devices.count(), elements}});
  const Partition own = over_devices(devices, 2);
  const double seconds =
      seconds_of_program(devices, x, own, own, [](Program&, const Tensor& input) { return input + 1.0; });
  const double rate = 8.0 * static_cast<double>(elements) / seconds;
  return {"memory rate",
          Verdict::kGood,
          fmt::format("{} read and written{}", rate_text(rate), on_each(devices)),
          "",
          {{"bytes_per_s", rate}}};
}

Finding measure_host_copies(Devices& devices) {
  const int64_t bytes = sizes_for(devices).array_bytes;
  const HostArray x = HostArray::zeros({DType::kF32, {bytes / 4}});
  const Layout first = Layout::replicated(x.shape().dims, 1);
  const double to = seconds_of([&] { DeviceBuffer::upload(devices.client(), x, first).wait(); });
  const DeviceBuffer there = DeviceBuffer::upload(devices.client(), x, first);
  const double from = seconds_of([&] { there.download(); });
  const double to_rate = static_cast<double>(bytes) / to, from_rate = static_cast<double>(bytes) / from;
  return {"host copies",
          Verdict::kGood,
          fmt::format("{} to a device, {} back", rate_text(to_rate), rate_text(from_rate)),
          "",
          {{"to_device_bytes_per_s", to_rate}, {"from_device_bytes_per_s", from_rate}}};
}

Finding measure_device_copies(Devices& devices) {
  const int64_t count = devices.count();
  if (count == 1) return {"device copies", Verdict::kSkipped, "there is one device", ""};
  const int64_t elements = sizes_for(devices).array_bytes / 4 / count;
  const HostArray x = HostArray::zeros({DType::kF32, {count, elements}});
  const double seconds =
      seconds_of_program(devices, x, over_devices(devices, 2), {},
                         [](Program&, const Tensor& input) { return sharding_constraint(input, {}); });
  const double rate = 4.0 * static_cast<double>(elements * (count - 1)) / seconds;
  return {"device copies",
          Verdict::kGood,
          fmt::format("each device receives {} from the others", rate_text(rate)),
          "",
          {{"bytes_per_s", rate}}};
}

}  // namespace fettle
