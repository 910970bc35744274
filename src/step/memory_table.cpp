#include "step/memory_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "programs/layouts.h"
#include "step/disk/disk_layout.h"
#include "step/state/batch_arrays.h"

namespace fettle {
namespace {

// Returns the number of a parameter's elements on one device.
int64_t shard_elements(const Run& run, const Param& param) {
  const Dims dims = stacked_shape(param, DType::kF32).dims;
  return layout_of(run.partition(param), dims, run.sharding.mesh()).boxes[0].elements();
}

// Returns one device's bytes of the parameters for which `wanted` is true.
template <typename Wanted>
int64_t shard_bytes(const Run& run, const std::vector<Param>& params, DType dtype, const Wanted& wanted) {
  int64_t total = 0;
  for (const Param& param : params)
    if (wanted(param)) total += shard_elements(run, param) * byte_size(run.dtype_of(param, dtype));
  return total;
}

int64_t shard_bytes(const Run& run, const std::vector<Param>& params, DType dtype, Memory memory) {
  return shard_bytes(run, params, dtype, [&](const Param& param) { return param.memory == memory; });
}

int64_t frozen_bytes(const Run& run, Memory memory) {
  return shard_bytes(run, run.frozen, run.frozen_dtype, memory) +
         shard_bytes(run, run.reference, run.reference_dtype(), memory);
}

int64_t trained_bytes(const Run& run, Memory memory) {
  return shard_bytes(run, run.trained, run.trained_dtype, memory);
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

// Returns one device's bytes of the weights that offload_param would move to host memory.
int64_t layer_bytes(const Run& run) {
  auto moved = [](const Param& param) { return param.stacked(); };
  return shard_bytes(run, run.frozen, run.frozen_dtype, moved) +
         shard_bytes(run, run.reference, run.reference_dtype(), moved) +
         shard_bytes(run, run.trained, run.trained_dtype, moved);
}

struct Line {
  std::string what;
  int64_t bytes;
};

std::vector<Line> parts(const MemoryTable& table) {
  std::vector<Line> lines;
  if (table.frozen > 0) lines.push_back({"frozen weights", table.frozen});
  lines.push_back({table.adapters ? "adapter weights" : "weights", table.trained});
  lines.push_back({"optimizer state", table.optimizer});
  lines.push_back({"batch", table.batch});
  lines.push_back({"activations, temporaries", table.temporaries});
  return lines;
}

// Explains the limit on a GPU's memory: "(of 85.00 GB, gpu_memory_utilization: 0.95)".
std::string describe(const MemoryShare& share) {
  std::string text = fmt::format("(of {}", size_text(share.total));
  if (share.requested() <= share.available())
    return text + fmt::format(", gpu_memory_utilization: {:g})", share.utilization);
  text += fmt::format(", minus an estimated {} for driver and libraries", size_text(share.allowance));
  if (share.others > 0) text += fmt::format(" and {} of other programs", size_text(share.others));
  return text + ")";
}

// Returns whether turning on offload_dir_weights would move weights to the disk.
bool could_put_weights_on_disk(const Run& run) {
  if (!run.state_on_disk() || run.offload_dir_weights) return false;
  return std::ranges::any_of(run.trained, [&](const Param& param) { return run.trained_above_compute(param); });
}

// Returns changes of the recipe that reduce the step's memory. If temporaries are more than half of the peak, the
// changes that reduce activations come first. Otherwise, the changes that reduce weights and state come first.
std::vector<std::string> remedies(const Run& run, const MemoryTable& table) {
  std::vector<std::string> activations, weights;
  const int64_t gap = -table.head_room();  // offload is named only if it moves as much as is missing
  if (run.remat.saves != Remat::kFull) activations.push_back("gradient_checkpointing: full");
  if (run.rows_per_device > 1)
    activations.push_back(fmt::format(
        "a per_device_train_batch_size below {} (raise gradient_accumulation_steps to keep the rows per step)",
        run.rows_per_device));
  activations.push_back(fmt::format("a cutoff_len below {}", run.data.cutoff_len));
  if (run.method() != "lora" && !run.from_scratch) weights.push_back("finetuning_type: lora");
  if (helps_to_quantise(run, table)) weights.push_back("quantization_bit: 4");
  if (helps_to_use_8_bit_state(run, table)) weights.push_back("optim: adamw_8bit");
  if (run.compute == DType::kF32) weights.push_back("bf16: true");
  const std::string optimizer = "offload_optimizer: true";
  const bool offloads = can_offload(run), state = offloads && !run.offload_optimizer && table.optimizer > 0;
  if (state && table.optimizer >= gap)
    weights.push_back(fmt::format("{} ({} to the host's memory)", optimizer, size_text(table.optimizer)));
  if (could_put_weights_on_disk(run))
    weights.push_back("offload_dir_weights: true (the layers' float32 weights to the disk)");
  if (offloads && !run.offload_param && offload_param_refusal(run).empty()) {
    const int64_t layers = layer_bytes(run), both = layers + (state ? table.optimizer : 0);
    if (layers >= gap)
      weights.push_back(fmt::format("offload_param: true ({} to the host's memory)", size_text(layers)));
    else if (both >= gap)
      weights.push_back(
          fmt::format("offload_param: true with {} ({} to the host's memory)", optimizer, size_text(both)));
  }
  weights.push_back("more devices (device_count, mesh: {fsdp: N})");
  if (const MemoryShare& share = table.share; share.requested() < share.available() && table.peak <= share.available())
    weights.push_back(fmt::format("a gpu_memory_utilization above {:g}", share.utilization));
  std::vector<std::string>& first = table.temporaries * 2 > table.peak ? activations : weights;
  std::vector<std::string>& second = &first == &activations ? weights : activations;
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

int64_t largest_entry(const MemoryTable& table) {
  return std::max({table.frozen, table.trained, table.optimizer, table.batch, table.temporaries});
}

}  // namespace

bool can_offload(const Run& run) {
  return run.sharding.stages() == 1 && !run.target.on_host();
}

bool helps_to_quantise(const Run& run, const MemoryTable& table) {
  // run/resolve/quantise.h has the rules.
  const bool possible = run.lora && run.quantised.empty() && !run.model.config.groups && run.merged.empty() &&
                        !run.pissa && !run.float8 && run.reference_folder.empty();
  return possible && table.frozen == largest_entry(table);
}

bool helps_to_use_8_bit_state(const Run& run, const MemoryTable& table) {
  return !run.lora && run.optimizer.rule->name == "adamw_torch" && table.optimizer == largest_entry(table);
}

int64_t held_bytes(const Run& run, const BatchShape& shape) {
  return frozen_bytes(run, Memory::kDevice) + trained_bytes(run, Memory::kDevice) +
         optimizer_bytes(run, Memory::kDevice) + batch_bytes(run, shape);
}

MemoryTable memory_table(const Run& run, const BatchShape& shape, const MemoryStats& stats, const MemoryShare& share,
                         std::string device) {
  MemoryTable table{.device = std::move(device), .adapters = run.lora.has_value(), .peak = stats.peak, .share = share};
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
    table.disk_has_weights = run.offload_dir_weights;
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
  return memory_table(run, shape, {.peak = held_bytes(run, shape)}, share, std::move(device));
}

std::string format_memory_table(const MemoryTable& table) {
  std::string text = fmt::format("memory of a step, on each device of {}:\n", table.device);
  const double peak = static_cast<double>(std::max<int64_t>(1, table.peak));
  for (const Line& line : parts(table))
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

void require_fit(const Run& run, const MemoryTable& table) {
  if (table.fits()) return;
  const std::vector<Line> lines = parts(table);
  const auto largest =
      std::max_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.bytes < b.bytes; });
  throw DoesNotFit(
      "the step needs {}{} on each device of {}, which has {}{}: {} too little. The largest part is {} ({}). To "
      "reduce it: {}",
      table.temporaries == 0 ? "more than " : "", size_text(table.peak), table.device, size_text(table.share.limit),
      table.share.total > 0 ? " for it " + describe(table.share) : "", size_text(-table.head_room()), largest->what,
      size_text(largest->bytes), fmt::join(remedies(run, table), "; "));
}

int64_t evaluation_peak(const Run& run, const MemoryTable& table, const MemoryStats& evaluation) {
  // On the CPU, host memory is also device memory.
  return evaluation.peak + table.optimizer + (run.target.on_host() ? table.host_optimizer : 0);
}

std::string format_evaluation_peak(const Run& run, int64_t peak) {
  return fmt::format("an evaluation needs {} on each device (per_device_eval_batch_size: {})", size_text(peak),
                     run.eval_rows_per_device);
}

void require_evaluation_fit(const Run& run, const MemoryTable& table, int64_t peak) {
  if (table.has_room_for(peak)) return;
  std::vector<std::string> remedies;
  if (run.eval_rows_per_device > 1)
    remedies.push_back(fmt::format("a per_device_eval_batch_size below {}", run.eval_rows_per_device));
  remedies.push_back(fmt::format("a cutoff_len below {}", run.data.cutoff_len));
  remedies.push_back("eval_strategy: no");
  throw DoesNotFit("{} of {}, which has {}{}: {} too little. To reduce it: {}", format_evaluation_peak(run, peak),
                   table.device, size_text(table.share.limit),
                   table.share.total > 0 ? " for it " + describe(table.share) : "", size_text(peak - table.share.limit),
                   fmt::join(remedies, "; "));
}

void require_host_fit(const MemoryTable& table, int64_t devices, int64_t free, int64_t processes) {
  const int64_t needed = (table.host() * devices + table.disk_staging) * processes;
  if (free == 0 || needed <= free) return;
  throw DoesNotFit(
      "offload needs {} of host memory{}, but only {} are free: remove one of offload_optimizer, offload_param and "
      "offload_dir, set pure_bf16: true, optim: adamw_8bit or quantization_bit, or use more devices on fsdp",
      size_text(needed), processes > 1 ? fmt::format(" for the {} processes of this host", processes) : "",
      size_text(free));
}

}  // namespace fettle
