#include "runtime/vendors/vendor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace fettle {
namespace {

// Returns the peak for the CPU plugin, whose own figure does not include temporaries.
int64_t sum_of_parts(const MemoryStats& stats) {
  return stats.argument + stats.output - stats.alias + stats.temp;
}

// Returns the peak for the GPU plugins. If a program uses pinned host memory, the plugins' own figure is wrong: it
// counts host memory as device memory. There are temporaries in device memory and in host memory, but the figure has
// only the larger of these two amounts.
int64_t reported_or_parts(const MemoryStats& stats) {
  const bool on_host = stats.host_argument + stats.host_output + stats.host_temp > 0;
  return stats.reported_peak > 0 && !on_host ? stats.reported_peak : sum_of_parts(stats);
}

// The files that show that a device is present (Vendor).
struct DeviceFiles {
  std::string_view own, shared, nodes;
};

// The GPU plugins of all vendors are built from the same XLA sources, so their table rows differ only in this
// function's parameters.
Vendor gpu_vendor(std::string_view name, std::string_view platform, const DeviceFiles& files, const Driver& driver,
                  std::vector<std::string_view> opened_libraries, std::string_view remedy) {
  return {
      .name = name,
      .file_word = name,
      .ffi_platform = platform,
      .device_file = files.own,
      .shared_device_file = files.shared,
      .device_nodes = files.nodes,
      .target_platform = platform,
      .remedy = remedy,
      .staging = Staging::kTransferManager,
      .counts_devices = false,
      .has_memory_options = true,
      .connects_processes = true,
      .driver = driver,
      .opened_libraries = std::move(opened_libraries),
      .library_bytes = 800'000'000,
      .communication_bytes = 1'200'000'000,
      // XLA computes values again when the temporaries of a program need more than 0.95 x (0.8 x the device's memory -
      // inputs and results). Its choice is poor: a step of 122 GB on an H200 became 29 % longer by the plan, and 0.5 GB
      // smaller. This flag replaces 0.95 by 1.12 (docs/decisions/2026-11-22-rematerialisation.md).
      .xla_flag = "--xla_gpu_memory_limit_slop_factor=112",
      .effort_flag = "xla_gpu_autotune_level",
      .tuning_flag = "xla_gpu_per_fusion_autotune_cache_dir",
      .timeout_flags = {"xla_gpu_execution_terminate_timeout", "xla_gpu_device_execution_terminate_timeout"},
      .pinned_limit = "XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB",
      .peak_bytes = reported_or_parts,
  };
}

// Returns the sorted names of the vendors for which `wanted` returns true.
std::vector<std::string_view> names_of(bool (*wanted)(const Vendor& row)) {
  std::vector<std::string_view> names;
  for (const Vendor& row : vendors())
    if (wanted(row)) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::optional<Float8> float8_of(std::string_view capability) {
  if (capability == kHostCapability || capability.starts_with("gfx950") || capability.starts_with("gfx12"))
    return Float8{};
  if (capability.starts_with("gfx942")) return Float8{DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ};
  if (capability.starts_with("gfx")) return std::nullopt;
  int major = 0, minor = 0;
  const char* const end = capability.data() + capability.size();
  const auto [at, error] = std::from_chars(capability.data(), end, major);
  if (error == std::errc() && at != end) std::from_chars(at + 1, end, minor);
  return major > 8 || (major == 8 && minor >= 9) ? std::optional(Float8{}) : std::nullopt;
}

// `fettle doctor` shows the part of an error after the last "; " as its remedy, so no remedy here contains "; ".
const std::vector<Vendor>& vendors() {
  static const std::vector<Vendor> rows = {
      gpu_vendor(
          "rocm", "ROCM", {.own = "/dev/kfd", .nodes = "/sys/class/kfd/kfd/topology/nodes"},
          {"libamdhip64.so.7", "ROCR_VISIBLE_DEVICES", "hipDriverGetVersion", 10'000'000, "/sys/module/amdgpu/version"},
          {},
          "install ROCm's libraries: for an MI300X, the package amdrocm-core-sdk7.14-gfx942 of AMD's repository, for "
          "other devices the one that docs/gpus.md names. The plugin comes with the wheel's extra [rocm], or with "
          "`make plugins`, which also makes stand-ins for the libraries, enough for `fettle plan`"),
      gpu_vendor(
          "cuda", "CUDA", {.own = "/dev/nvidiactl", .shared = "/dev/dxg"},
          {"libcuda.so.1", "CUDA_VISIBLE_DEVICES", "cuDriverGetVersion", 1000, "/sys/module/nvidia/version", true,
           13000, "580"},
          {"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcufft.so.12",
           "libcupti.so.13", "libnccl.so.2", "libnvJitLink.so.13", "libnvrtc.so.13"},
          "run `make plugins` to fetch the plugin, the compiler parts it needs and, if NVIDIA's driver is there, "
          "CUDA's libraries, or install the wheel with its extra [cuda] (docs/install.md)"),
      {
          .name = "cpu",
          .file_word = "cpu",
          .ffi_platform = "Host",
          .device_file = "",
          .target_platform = "",
          .remedy = "run `make setup` to fetch the CPU plugin, or install Fettle's package again",
          .staging = Staging::kHostMemory,
          .counts_devices = true,
          .has_memory_options = false,
          .compile_bytes = 300'000'000,
          // CPU devices share the cores, so a device may reach a collective late. Without this flag, the plugin would
          // end the process after 40 s.
          .xla_flag = "--xla_cpu_collective_call_terminate_timeout_seconds=86400",
          .effort_flag = "xla_backend_optimization_level",
          .thread_variables = {"PJRT_NPROC", "NPROC"},
          .peak_bytes = sum_of_parts,
      },
  };
  return rows;
}

const Vendor& unknown_vendor() {
  static const std::string remedy = [] {
    std::vector<std::string_view> names;
    for (const Vendor& row : vendors()) names.push_back(row.name);
    return fmt::format("name a PJRT plugin's .so file, or one of {}", fmt::join(names, ", "));
  }();
  static const Vendor row = {
      .name = "",
      .file_word = "",
      .ffi_platform = "",
      .device_file = "",
      .target_platform = "",
      .remedy = remedy,
      .staging = Staging::kWholeBox,
      .counts_devices = false,
      .has_memory_options = false,
      .xla_flag = "",
      .peak_bytes = sum_of_parts,
  };
  return row;
}

const Vendor* vendor_named(std::string_view name) {
  const auto& rows = vendors();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Vendor& v) { return v.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

const Vendor* vendor_of_capability(std::string_view capability) {
  return vendor_named(capability.starts_with("gfx") ? "rocm" : "cuda");
}

std::vector<std::string_view> vendors_with_targets() {
  return names_of([](const Vendor& row) { return !row.target_platform.empty(); });
}

std::vector<std::string_view> vendors_that_connect() {
  return names_of([](const Vendor& row) { return row.connects_processes; });
}

const Vendor& vendor_of_file(std::string_view file_name) {
  for (const Vendor& row : vendors()) {
    if (file_name.find(row.file_word) != std::string_view::npos) return row;
  }
  return unknown_vendor();
}

}  // namespace fettle
