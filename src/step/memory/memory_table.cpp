#include "step/memory/memory_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "programs/layouts.h"
#include "step/disk/disk_layout.h"
#include "step/memory/shard_bytes.h"
#include "step/state/batch_arrays.h"

namespace fettle {
namespace {

// Returns one device's bytes of the parameters in this memory.
int64_t bytes_in(Memory memory, const Run& run, const std::vector<Param>& params, DType dtype) {
  return shard_bytes(run, params, dtype, [&](const Param& param) { return param.memory == memory; });
}

int64_t frozen_bytes(const Run& run, Memory memory) {
  return bytes_in(memory, run, run.frozen, run.precision.frozen) +
         bytes_in(memory, run, run.reference.params, run.reference_dtype());
}

int64_t trained_bytes(const Run& run, Memory memory) {
  return bytes_in(memory, run, run.trained, run.precision.trained);
}

// Returns an upper limit for one device's bytes of gradients in device memory. Assumes that all gradients are in f32.
int64_t gradient_bytes(const Run& run) {
  int64_t total = 0;
  for (const Param& param : run.trained)
    if (param.memory == Memory::kDevice) total += shard_elements(run, param) * byte_size(DType::kF32);
  return total;
}

int64_t optimizer_bytes(const Run& run, Memory memory) {
  int64_t total = 0;
  for (const Param& param : run.trained)
    for (const StateArray& array : optimizer_state(run, param))
      if (array.memory == memory && !array.on_disk)
        total += layout_of(array.partition, array.shape.dims, run.sharding.mesh()).boxes[0].elements() *
                 byte_size(array.shape.dtype);
  return total;
}

int64_t batch_bytes(const Run& run, const BatchShape& shape) {
  int64_t total = 0;
  for (const BatchArray& array : batch_arrays(run, shape, BatchExtent::kStep)) {
    const Dims& dims = array.shape.dims;
    const Partition partition = run.sharding.partition(array.axes, dims, "the batch");
    total += layout_of(partition, dims, run.sharding.mesh()).boxes[0].elements() * byte_size(array.shape.dtype);
  }
  return total;
}

}  // namespace

int64_t held_bytes(const Run& run, const BatchShape& shape) {
  return frozen_bytes(run, Memory::kDevice) + trained_bytes(run, Memory::kDevice) +
         optimizer_bytes(run, Memory::kDevice) + batch_bytes(run, shape);
}

MemoryTable memory_table(const Run& run, const BatchShape& shape, const MemoryStats& stats, const MemoryShare& share,
                         std::string device) {
  MemoryTable table{
      .device = std::move(device), .adapters = run.adapter.lora.has_value(), .peak = stats.peak, .share = share};
  table.frozen = frozen_bytes(run, Memory::kDevice);
  table.trained = trained_bytes(run, Memory::kDevice);
  table.gradients = gradient_bytes(run);
  table.optimizer = optimizer_bytes(run, Memory::kDevice);
  table.host_frozen = frozen_bytes(run, Memory::kHost);
  table.host_trained = trained_bytes(run, Memory::kHost);
  table.host_optimizer = optimizer_bytes(run, Memory::kHost);
  table.host_temporaries =
      std::max<int64_t>(0, stats.host_argument + stats.host_output - stats.host_alias + stats.host_temp - table.host());
  if (run.state_on_disk()) {
    const DiskLayout disk = disk_layout(run);
    table.disk = disk.file_bytes;
    table.disk_has_weights = run.offload.dir_weights;
    table.disk_staging = disk.staging_bytes;
  }
  table.batch = batch_bytes(run, shape);
  // On the CPU, host memory is also device memory: the plugin does not distinguish them, and the peak counts both.
  const int64_t in_peak = stats.host_argument == 0 ? table.host() : 0;
  table.temporaries = std::max<int64_t>(0, table.peak - held_bytes(run, shape) - in_peak);
  return table;
}

MemoryTable held_table(const Run& run, const MemoryShare& share, std::string device) {
  const BatchShape shape = fullest_shape(run.batch);
  const int64_t peak = held_bytes(run, shape) - batch_bytes(run, shape);
  MemoryTable table = memory_table(run, shape, {.peak = peak}, share, std::move(device));
  table.batch = 0;
  return table;
}

std::vector<MemoryLine> memory_lines(const MemoryTable& table) {
  std::vector<MemoryLine> lines;
  if (table.frozen > 0) lines.push_back({"frozen weights", table.frozen});
  lines.push_back({table.adapters ? "adapter weights" : "weights", table.trained});
  lines.push_back({"optimizer state", table.optimizer});
  lines.push_back({"batch", table.batch});
  lines.push_back({"activations, temporaries", table.temporaries});
  return lines;
}

std::string describe(const MemoryShare& share) {
  std::string text = fmt::format("(of {}", size_text(share.total));
  if (share.requested() <= share.available())
    return text + fmt::format(", gpu_memory_utilization: {:g})", share.utilization);
  text += fmt::format(", minus an estimated {} for driver and libraries", size_text(share.allowance));
  if (share.others > 0) text += fmt::format(" and {} of other programs", size_text(share.others));
  return text + ")";
}

std::string format_memory_table(const MemoryTable& table) {
  std::string text = fmt::format("memory of a step, on each device of {}:\n", table.device);
  const double peak = static_cast<double>(std::max<int64_t>(1, table.peak));
  for (const MemoryLine& line : memory_lines(table))
    text += fmt::format("  {:<26}{:>12}  {:>5.1f}%\n", line.what, size_text(line.bytes),
                        100 * static_cast<double>(line.bytes) / peak);
  text += fmt::format("    of which gradients up to{:>14}\n", size_text(table.gradients));
  text += fmt::format("  {:<26}{:>12}", "peak (compiler's count)", size_text(table.peak));
  if (table.host() > 0)
    text +=
        fmt::format("\n  {:<26}{:>12}  weights {}, optimizer state {}, gradients and scratch {}",
                    "in the host's memory", size_text(table.host()), size_text(table.host_frozen + table.host_trained),
                    size_text(table.host_optimizer), size_text(table.host_temporaries));
  if (table.disk > 0)
    text += fmt::format(
        "\n  {:<26}{:>12}  {}optimizer state of all devices; a step reads and writes all of it once, through {} of "
        "host memory",
        "on the disk of offload_dir", size_text(table.disk), table.disk_has_weights ? "float32 weights and " : "",
        size_text(table.disk_staging));
  const MemoryShare& share = table.share;
  if (!share.known()) return text + "\n  the device's memory limit is not known";
  text += fmt::format("\n  {:<26}{:>12}", "limit", size_text(share.limit));
  if (share.total > 0) text += "  " + describe(share);
  text += fmt::format("\n  {:<26}{:>12}", "head-room", size_text(table.head_room()));
  if (share.limit == 0) return text;
  return text + fmt::format("  {:>5.1f}% of the limit",
                            100 * static_cast<double>(table.head_room()) / static_cast<double>(share.limit));
}

nlohmann::json to_json(const MemoryTable& table) {
  nlohmann::json out{{"device", table.device},
                     {"frozen_bytes", table.frozen},
                     {"adapter_bytes", table.adapters ? table.trained : 0},
                     {"trained_bytes", table.trained},
                     {"gradient_bytes", table.gradients},
                     {"optimizer_bytes", table.optimizer},
                     {"batch_bytes", table.batch},
                     {"temporary_bytes", table.temporaries},
                     {"peak_bytes", table.peak},
                     {"allowance_bytes", table.share.allowance},
                     {"host_bytes", table.host()},
                     {"host_frozen_bytes", table.host_frozen},
                     {"host_trained_bytes", table.host_trained},
                     {"host_optimizer_bytes", table.host_optimizer},
                     {"host_temporary_bytes", table.host_temporaries},
                     {"disk_bytes", table.disk},
                     {"disk_staging_bytes", table.disk_staging}};
  const auto or_null = [](bool known, auto value) { return known ? nlohmann::json(value) : nlohmann::json(nullptr); };
  out["limit_bytes"] = or_null(table.share.known(), table.share.limit);
  out["head_room_bytes"] = or_null(table.share.known(), table.head_room());
  out["memory_bytes"] = or_null(table.share.total > 0, table.share.total);
  out["gpu_memory_utilization"] = or_null(table.share.total > 0, table.share.utilization);
  return out;
}

}  // namespace fettle
