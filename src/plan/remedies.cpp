#include "plan/remedies.h"

#include "base/error.h"
#include "base/log.h"
#include "step/make_job.h"

namespace fettle {
namespace {

constexpr size_t kEnough = 3;  // remedies shown

class Search {
 public:
  Search(const StepPlan& plan, const ConfigFile& config, const Machine& machine)
      : plan_(plan), config_(config), machine_(machine) {}

  std::vector<Remedy> run() {
    const Recipe& r = plan_.recipe;
    const bool held_fits = plan_.memory.peak - plan_.memory.temporaries + plan_.memory.allowance <= plan_.memory.limit;
    if (held_fits) {  // else no change of the activations helps
      if (r.gradient_checkpointing != "full") {
        Recipe changed = r;
        changed.gradient_checkpointing = "full";
        attempt("gradient_checkpointing: full", changed, machine_);
      }
      fewer_rows();
      shorter_rows();
    }
    offload();
    more_devices();
    if (r.finetuning_type == "full" && !r.train_from_scratch) {
      Recipe changed = r;
      changed.finetuning_type = "lora";
      attempt("finetuning_type: lora", changed, machine_);
    }
    return std::move(found_);
  }

 private:
  // True when it fits; a change that the model's sizes do not allow is none.
  bool attempt(const std::string& change, const Recipe& recipe, const Machine& machine) {
    if (found_.size() >= kEnough) return true;
    live_line("trying " + change);
    try {
      const Job job = make_job(recipe, config_.json, config_.file, machine.count());
      if (held_bytes(job, job.longest_row()) > plan_.memory.limit) return false;
      StepPlan plan = plan_step(recipe, config_, machine);
      if (!plan.memory.fits()) return false;
      found_.push_back({change, std::move(plan.memory)});
      return true;
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
      return false;
    }
  }

  // Temporaries grow with the rows: the share that fits, then one row.
  void fewer_rows() {
    const int64_t rows = plan_.recipe.per_device_train_batch_size;
    const double room =
        static_cast<double>(plan_.memory.limit - plan_.memory.allowance - plan_.memory.peak + plan_.memory.temporaries);
    int64_t fewer =
        static_cast<int64_t>(static_cast<double>(rows) * room / static_cast<double>(plan_.memory.temporaries));
    while (fewer > 1 && rows % fewer != 0) --fewer;
    for (int64_t size : {fewer, int64_t{1}}) {
      if (size < 1 || size >= rows) continue;
      Recipe changed = plan_.recipe;
      changed.per_device_train_batch_size = size;
      changed.gradient_accumulation_steps *= rows / size;
      if (attempt(
              fmt::format("per_device_train_batch_size: {} with gradient_accumulation_steps: {} (the same rows a step)",
                          size, changed.gradient_accumulation_steps),
              changed, machine_))
        return;
    }
  }

  void shorter_rows() {
    for (int64_t length = plan_.recipe.cutoff_len / 2, tries = 0; length >= 128 && tries < 2; length /= 2, ++tries) {
      Recipe changed = plan_.recipe;
      changed.cutoff_len = length;
      if (attempt(fmt::format("cutoff_len: {}", length), changed, machine_)) return;
    }
  }

  // The optimizer's state first, which is read and written once a step; weights are read twice.
  void offload() {
    Recipe changed = plan_.recipe;
    const std::string state = size_text(plan_.memory.optimizer);
    if (!changed.offload_optimizer) {
      changed.offload_optimizer = true;
      if (attempt(fmt::format("offload_optimizer: true ({} to the host's memory)", state), changed, machine_)) return;
    }
    if (changed.offload_param) return;
    changed.offload_param = true;
    attempt(plan_.recipe.offload_optimizer ? "offload_param: true" : "offload_param: true with offload_optimizer: true",
            changed, machine_);
  }

  void more_devices() {
    for (const int64_t times : {2, 4, 8}) {
      if (found_.size() >= kEnough) return;
      const std::optional<Machine> larger = machine_.grown(times);
      if (!larger) return;
      Recipe changed = plan_.recipe;
      changed.device_count.reset();
      const bool named = !changed.mesh.empty();
      if (named) changed.mesh["fsdp"] = std::max<int64_t>(1, changed.mesh["fsdp"]) * times;
      const std::string mesh = named ? fmt::format(" with mesh fsdp {}", changed.mesh["fsdp"]) : "";
      if (attempt(larger->title() + mesh, changed, *larger)) return;
    }
  }

  const StepPlan& plan_;
  const ConfigFile& config_;
  const Machine& machine_;
  std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> find_remedies(const StepPlan& plan, const ConfigFile& config, const Machine& machine) {
  return Search(plan, config, machine).run();
}

}  // namespace fettle
