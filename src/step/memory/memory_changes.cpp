#include "step/memory/memory_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/size_text.h"
#include "sharding/rules.h"
#include "step/memory/shard_bytes.h"

namespace fettle {
namespace {

using Part = MemoryChange::Part;

// With tp, every device stores the whole hidden state that enters a layer, unless the recipe splits it.
bool stores_whole_hidden_state(const Run& run) {
  const int64_t tp = run.sharding.mesh().size_of("tp");
  return tp > 1 && run.model.config.hidden_size % tp == 0 &&
         run.sharding.fitting({"act_embed"}, {run.model.config.hidden_size}).dims[0].empty();
}

int64_t largest_part(const MemoryTable& table) {
  int64_t largest = 0;
  for (const MemoryLine& line : memory_lines(table)) largest = std::max(largest, line.bytes);
  return largest;
}

// Returns whether quantization_bit: 4 is possible (run/resolve/quantise.h has the rules), and the frozen weights of
// LoRA are the largest part.
bool helps_to_quantise(const Run& run, const MemoryTable& table) {
  const bool possible = run.adapter.lora && run.quantised.empty() && !run.model.config.groups &&
                        run.adapter.merged.empty() && !run.adapter.pissa && !run.precision.float8 &&
                        run.reference.folder.empty();
  return possible && table.frozen == largest_part(table);
}

// Returns whether optim: adamw_8bit can replace AdamW in full tuning, and the optimizer state is the largest part.
bool helps_to_use_8_bit_state(const Run& run, const MemoryTable& table) {
  return !run.adapter.lora && run.optimizer.rule->name == "adamw_torch" && table.optimizer == largest_part(table);
}

// Returns whether arrays can move to the host's memory. A pipeline needs them on the devices. On the CPU, host memory
// is the device's memory.
bool can_offload(const Run& run) {
  return run.sharding.stages() == 1 && !run.target.on_host();
}

// Returns whether turning on offload_dir_weights would move weights to the disk.
bool could_put_weights_on_disk(const Run& run) {
  if (!run.state_on_disk() || run.offload.dir_weights) return false;
  return std::ranges::any_of(run.trained, [&](const Param& param) { return run.trained_above_compute(param); });
}

// Returns whether a recipe that trains weights of the base may set finetuning_type: lora without changing other keys
// (config/checks.cpp, check_offload_dir).
bool may_train_with_lora(const Run& run) {
  const bool for_matrices = run.optimizer.rule->name == "muon" || run.optimizer.rule->projects;
  const bool freezes = std::ranges::any_of(
      std::array{"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules", "use_llama_pro"},
      [&](const char* key) { return run.places.has(key); });
  return run.method() != "lora" && !run.from_scratch && !for_matrices && !freezes && !run.state_on_disk() &&
         !run.update.embedding_lr;
}

// Returns one device's bytes of the weights that offload_param would move to host memory.
int64_t layer_bytes(const Run& run) {
  auto moved = [](const Param& param) { return param.stacked(); };
  return shard_bytes(run, run.frozen, run.precision.frozen, moved) +
         shard_bytes(run, run.reference.params, run.reference_dtype(), moved) +
         shard_bytes(run, run.trained, run.precision.trained, moved);
}

// Returns one device's bytes of the master weights that offload_optimizer would move to host memory.
int64_t master_bytes(Run run) {
  run.offload.optimizer = true;
  return shard_bytes(run, run.trained, run.precision.trained,
                     [&](const Param& param) { return run.has_master(param); });
}

// Lists the changes. Each function below adds one change, or none if the run does not allow it.
class ChangeList {
 public:
  ChangeList(const Run& run, const MemoryTable& table, const Variant& from) : run_(run), table_(table), from_(from) {}

  std::vector<MemoryChange> take() {
    if (run_.remat.saves != Remat::kFull)
      add(Part::kActivations, "gradient_checkpointing: full", [](Variant& v) { v.gradient_checkpointing = "full"; });
    if (stores_whole_hidden_state(run_))
      add(Part::kActivations, "sharding: {act_embed: tp}", [](Variant& v) { v.sharding["act_embed"] = "tp"; });
    fewer_rows();
    shorter_rows();
    larger_share();
    if (run_.precision.compute == DType::kF32) add(Part::kWeights, "bf16: true", [](Variant& v) { v.bf16 = true; });
    if (helps_to_quantise(run_, table_))
      add(Part::kWeights, "quantization_bit: 4", [](Variant& v) { v.quantization_bit = 4; });
    if (helps_to_use_8_bit_state(run_, table_))
      add(Part::kWeights, "optim: adamw_8bit", [](Variant& v) { v.optim = "adamw_8bit"; });
    offload();
    // The batch and the temporaries are all that these changes can reduce.
    if (table_.temporaries + table_.batch < -table_.head_room())
      for (MemoryChange& change : changes_)
        if (change.part == Part::kActivations) change.named = false;
    if (!run_.target.on_host())
      changes_.push_back(
          {.part = Part::kWeights, .text = "more devices (device_count, mesh: {fsdp: N})", .more_devices = true});
    if (may_train_with_lora(run_))
      add(Part::kWeights, "finetuning_type: lora", [](Variant& v) { v.finetuning_type = "lora"; });
    return std::move(changes_);
  }

 private:
  template <typename Set>
  MemoryTrial trial(std::string text, const Set& set) const {
    MemoryTrial out{std::move(text), from_};
    set(out.variant);
    return out;
  }

  // Adds a change with one trial. `key` is the recipe's line; `note` explains it.
  template <typename Set>
  void add(Part part, const std::string& key, const Set& set, const std::string& note = "", bool named = true) {
    changes_.push_back({.part = part, .text = key + note, .trials = {trial(key, set)}, .named = named});
  }

  // Temporaries grow with the number of rows. The first trial has as many rows as should fit; the second has one.
  void fewer_rows() {
    const int64_t rows = run_.rows_per_device;
    if (rows == 1) return;
    const std::string mesh = with_chosen_mesh(from_);
    MemoryChange change{.text = fmt::format("{}a per_device_train_batch_size below {} (raise "
                                            "gradient_accumulation_steps to keep the rows per step)",
                                            mesh, rows)};
    const int64_t room = table_.head_room() + table_.temporaries;
    int64_t fewer = 1;
    if (room > 0 && table_.temporaries > 0)
      fewer = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rows) * static_cast<double>(room) /
                                                        static_cast<double>(table_.temporaries)));
    while (rows % fewer != 0) --fewer;
    for (const int64_t size : {fewer, int64_t{1}}) {
      if (!change.trials.empty() && size == fewer) break;
      const int64_t micro_batches = run_.batch.micro_batches * rows / size;
      change.trials.push_back(
          trial(fmt::format("{}per_device_train_batch_size: {} with gradient_accumulation_steps: {} (the same number "
                            "of rows per step)",
                            mesh, size, micro_batches),
                [&](Variant& v) {
                  v.per_device_train_batch_size = size;
                  v.gradient_accumulation_steps = micro_batches;
                }));
    }
    changes_.push_back(std::move(change));
  }

  void shorter_rows() {
    MemoryChange change{.text = fmt::format("a cutoff_len below {}", run_.data.cutoff_len)};
    for (const int64_t length : {run_.data.cutoff_len / 2, run_.data.cutoff_len / 4})
      if (length >= 128)
        change.trials.push_back(
            trial(fmt::format("cutoff_len: {}", length), [&](Variant& v) { v.cutoff_len = length; }));
    changes_.push_back(std::move(change));
  }

  void larger_share() {
    const MemoryShare& share = table_.share;
    if (share.requested() >= share.available() || table_.peak > share.available()) return;
    const double least = static_cast<double>(table_.peak) / static_cast<double>(share.total);
    const MemoryShare larger = share.with_utilization(std::ceil(least * 100) / 100);
    changes_.push_back({.part = Part::kWeights,
                        .text = fmt::format("a gpu_memory_utilization above {:g}", share.utilization),
                        .trials = {{fmt::format("gpu_memory_utilization: {:g}", larger.utilization), from_, larger}}});
  }

  // Lists the optimizer state before the weights: a step reads and writes it once, but reads the weights twice. Offload
  // may also move master weights or gradients. How much that saves is not known before the step is compiled.
  void offload() {
    const std::string optimizer = "offload_optimizer: true", param = "offload_param: true";
    const auto set_optimizer = [](Variant& v) { v.offload_optimizer = true; };
    const auto set_param = [](Variant& v) { v.offload_param = true; };
    const auto to_host = [](int64_t bytes) { return fmt::format(" ({} to the host's memory)", size_text(bytes)); };
    const bool possible = can_offload(run_);
    const bool moves_state = possible && !run_.offload.optimizer && !run_.state_on_disk() && table_.optimizer > 0;
    const int64_t gap = -table_.head_room(), state = moves_state ? table_.optimizer : 0;
    if (moves_state) add(Part::kWeights, optimizer, set_optimizer, to_host(state), state + master_bytes(run_) >= gap);
    if (could_put_weights_on_disk(run_))
      add(
          Part::kWeights, "offload_dir_weights: true", [](Variant& v) { v.offload_dir_weights = true; },
          " (the layers' float32 weights to the disk)");
    if (!possible || run_.offload.param || !offload_param_refusal(run_).empty()) return;
    const int64_t layers = layer_bytes(run_);
    const std::string both = param + " with " + optimizer;
    const bool alone = layers >= gap || !moves_state;
    MemoryChange change{.part = Part::kWeights,
                        .text = alone ? param + to_host(layers) : both + to_host(layers + state),
                        .trials = {trial(param, set_param)},
                        .named = layers + table_.gradients + state >= gap};
    if (moves_state)
      change.trials.push_back(trial(both, [&](Variant& v) {
        set_param(v);
        set_optimizer(v);
      }));
    changes_.push_back(std::move(change));
  }

  const Run& run_;
  const MemoryTable& table_;
  const Variant& from_;
  std::vector<MemoryChange> changes_;
};

}  // namespace

std::string with_chosen_mesh(const Variant& variant) {
  return variant.mesh ? mesh_key(*variant.mesh) + " and " : "";
}

std::vector<MemoryChange> memory_changes(const Run& run, const MemoryTable& table, const Variant& from) {
  return ChangeList(run, table, from).take();
}

}  // namespace fettle
