#include "step/memory_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "step/placement.h"

namespace fettle {
namespace {

// Bytes of one device's part of the rows.
int64_t shard_bytes(const Job& job, const std::vector<WeightRow>& rows, DType dtype) {
  int64_t total = 0;
  for (const WeightRow& row : rows) {
    const Dims dims = stacked_shape(row, job.model.config, dtype).dims;
    const Partition partition = job.sharding.partition(stacked_axes(row), dims, row.name);
    total += layout_of(partition, dims, job.sharding.mesh()).boxes[0].elements() * byte_size(row.dtype.value_or(dtype));
  }
  return total;
}

int64_t frozen_bytes(const Job& job) {
  return shard_bytes(job, job.frozen, job.frozen_dtype) + shard_bytes(job, job.reference, job.reference_dtype());
}

int64_t optimizer_bytes(const Job& job) {
  int64_t total = 0;
  for (const WeightRow& row : job.trained)
    for (const StateArray& array : optimizer_state(job, row))
      total += layout_of(array.partition, array.shape.dims, job.sharding.mesh()).boxes[0].elements() *
               byte_size(array.shape.dtype);
  return total;
}

int64_t batch_bytes(const Job& job, int64_t length) {
  const Dims dims{job.recipe.gradient_accumulation_steps, job.sequences_per_micro_batch(), length};
  const Partition partition = job.sharding.partition({"", "batch", "length"}, dims, "the batch");
  constexpr int64_t kArrays = 4;  // tokens, targets, positions, segments
  return kArrays * layout_of(partition, dims, job.sharding.mesh()).boxes[0].elements() * byte_size(DType::kI32);
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

// Keys that make the step smaller, those that help most first.
std::vector<std::string> remedies(const Job& job, const MemoryTable& table) {
  const Recipe& r = job.recipe;
  std::vector<std::string> activations, weights;
  if (r.gradient_checkpointing != "full") activations.push_back("gradient_checkpointing: full");
  if (r.per_device_train_batch_size > 1)
    activations.push_back(fmt::format(
        "a per_device_train_batch_size below {} (with more gradient_accumulation_steps the steps stay the same)",
        r.per_device_train_batch_size));
  activations.push_back(fmt::format("a cutoff_len below {}", r.cutoff_len));
  if (!job.lora) weights.push_back("finetuning_type: lora");
  if (job.compute == DType::kF32) weights.push_back("bf16: true");
  weights.push_back("more devices (device_count, mesh: {fsdp: N})");
  std::vector<std::string>& first = table.temporaries * 2 > table.peak ? activations : weights;
  std::vector<std::string>& second = &first == &activations ? weights : activations;
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

std::string size_text(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (std::abs(value) >= 1e9) return fmt::format("{:.2f} GB", value / 1e9);
  if (std::abs(value) < 1e5) return fmt::format("{:.2f} KB", value / 1e3);
  return fmt::format("{:.2f} MB", value / 1e6);
}

int64_t held_bytes(const Job& job, int64_t length) {
  return frozen_bytes(job) + shard_bytes(job, job.trained, job.trained_dtype) + optimizer_bytes(job) +
         batch_bytes(job, length);
}

MemoryTable memory_table(const Job& job, int64_t length, const MemoryStats& stats, int64_t limit, std::string device,
                         int64_t allowance) {
  MemoryTable table{.device = std::move(device),
                    .adapters = job.lora.has_value(),
                    .peak = stats.peak,
                    .allowance = allowance,
                    .limit = limit};
  table.frozen = frozen_bytes(job);
  table.trained = shard_bytes(job, job.trained, job.trained_dtype);
  table.gradients = shard_bytes(job, job.trained, DType::kF32);
  table.optimizer = optimizer_bytes(job);
  table.batch = batch_bytes(job, length);
  table.temporaries = std::max<int64_t>(0, table.peak - held_bytes(job, length));
  return table;
}

MemoryTable held_table(const Job& job, int64_t limit, std::string device) {
  const int64_t length = job.longest_row();
  return memory_table(job, length, {.peak = held_bytes(job, length)}, limit, std::move(device));
}

std::string format_memory_table(const MemoryTable& table) {
  std::string text = fmt::format("memory of a step, on each device of {}:\n", table.device);
  const double peak = static_cast<double>(std::max<int64_t>(1, table.peak));
  for (const Line& line : parts(table))
    text += fmt::format("  {:<26}{:>12}  {:>5.1f}%\n", line.what, size_text(line.bytes),
                        100 * static_cast<double>(line.bytes) / peak);
  text += fmt::format("    of which gradients up to{:>14}\n", size_text(table.gradients));
  text += fmt::format("  {:<26}{:>12}", "peak (compiler's count)", size_text(table.peak));
  if (table.allowance > 0)
    text += fmt::format("\n  {:<26}{:>12}  (context, workspaces, communication: a guess)", "allowance for libraries",
                        size_text(table.allowance));
  if (table.limit == 0) return text + "\n  the device's limit is not known";
  text += fmt::format("\n  {:<26}{:>12}\n  {:<26}{:>12}", "limit", size_text(table.limit), "head-room",
                      size_text(table.head_room()));
  return text + fmt::format("  {:>5.1f}% of the limit",
                            100 * static_cast<double>(table.head_room()) / static_cast<double>(table.limit));
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
                     {"allowance_bytes", table.allowance}};
  out["limit_bytes"] = table.limit > 0 ? nlohmann::json(table.limit) : nlohmann::json(nullptr);
  out["head_room_bytes"] = table.limit > 0 ? nlohmann::json(table.head_room()) : nlohmann::json(nullptr);
  return out;
}

void require_fit(const Job& job, const MemoryTable& table) {
  if (table.fits()) return;
  const std::vector<Line> lines = parts(table);
  const auto largest =
      std::max_element(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.bytes < b.bytes; });
  throw DoesNotFit(
      "the step needs {}{}{} on each device of {}, which has {}: {} too little. The largest part is {} ({}). "
      "Smaller make it: {}",
      table.temporaries == 0 ? "more than " : "", size_text(table.peak),
      table.allowance > 0 ? " and " + size_text(table.allowance) + " for libraries" : "", table.device,
      size_text(table.limit), size_text(-table.head_room()), largest->what, size_text(largest->bytes),
      fmt::join(remedies(job, table), "; "));
}

}  // namespace fettle
