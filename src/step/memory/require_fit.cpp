#include "step/memory/require_fit.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "step/memory/memory_changes.h"

namespace fettle {
namespace {

// If temporaries are more than half of the peak, the changes that reduce activations come first. Otherwise, the changes
// that reduce weights and state come first.
std::vector<std::string> change_texts(const Run& run, const MemoryTable& table, const Variant& variant) {
  using Part = MemoryChange::Part;
  const Part first = table.temporaries * 2 > table.peak ? Part::kActivations : Part::kWeights;
  std::vector<MemoryChange> changes = memory_changes(run, table, variant);
  std::ranges::stable_partition(changes, [&](const MemoryChange& change) { return change.part == first; });
  std::vector<std::string> texts;
  for (const MemoryChange& change : changes)
    if (change.named) texts.push_back(change.text);
  return texts;
}

// If the recipe names the mesh, its per_device_train_batch_size counts for this mesh. Returns the values that keep the
// rows of a step.
std::string kept_rows(const Variant& variant) {
  if (!variant.mesh || !variant.per_device_train_batch_size) return "";
  const auto& micro_batches = variant.gradient_accumulation_steps;
  return fmt::format(" (with per_device_train_batch_size: {}{} to keep the rows per step)",
                     *variant.per_device_train_batch_size,
                     micro_batches ? fmt::format(" and gradient_accumulation_steps: {}", *micro_batches) : "");
}

}  // namespace

void require_fit(const Run& run, const MemoryTable& table, const Variant& variant) {
  if (table.fits()) return;
  const MemoryLine largest = std::ranges::max(memory_lines(table), {}, &MemoryLine::bytes);
  std::vector<std::string> changes = change_texts(run, table, variant);
  if (changes.empty()) changes.emplace_back("a smaller model, or a host with more memory");
  throw DoesNotFit(
      "the step needs {}{} on each device of {}, which has {}{}: {} too little. The largest part is {} ({}). To "
      "reduce it: {}",
      table.temporaries == 0 ? "more than " : "", size_text(table.peak), table.device, size_text(table.share.limit),
      table.share.total > 0 ? " for it " + describe(table.share) : "", size_text(-table.head_room()), largest.what,
      size_text(largest.bytes), fmt::join(changes, "; "));
}

int64_t evaluation_peak(const Run& run, const MemoryTable& table, const MemoryStats& evaluation) {
  // On the CPU, host memory is also device memory.
  return evaluation.peak + table.optimizer + (run.target.on_host() ? table.host_optimizer : 0);
}

std::string format_evaluation_peak(const Run& run, int64_t peak, const Variant& variant) {
  return fmt::format("an evaluation needs {} on each device ({}per_device_eval_batch_size: {})", size_text(peak),
                     with_chosen_mesh(variant), run.eval_rows_per_device);
}

std::vector<std::string> evaluation_changes(const Run& run, const Variant& variant) {
  std::vector<std::string> changes;
  if (run.eval_rows_per_device > 1)
    changes.push_back(fmt::format("{}a per_device_eval_batch_size below {}{}", with_chosen_mesh(variant),
                                  run.eval_rows_per_device, kept_rows(variant)));
  changes.push_back(fmt::format("a cutoff_len below {}", run.data.cutoff_len));
  if (!run.best.used()) changes.push_back("eval_strategy: no");
  return changes;
}

void require_evaluation_fit(const Run& run, const MemoryTable& table, int64_t peak, const Variant& variant) {
  if (table.has_room_for(peak)) return;
  throw DoesNotFit("{} of {}, which has {}{}: {} too little. To reduce it: {}",
                   format_evaluation_peak(run, peak, variant), table.device, size_text(table.share.limit),
                   table.share.total > 0 ? " for it " + describe(table.share) : "", size_text(peak - table.share.limit),
                   fmt::join(evaluation_changes(run, variant), "; "));
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
