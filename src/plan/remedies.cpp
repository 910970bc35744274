#include "plan/remedies.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "plan/say_work.h"
#include "sharding/rules.h"
#include "step/memory/memory_changes.h"

namespace fettle {
namespace {

constexpr size_t kEnough = 3;  // the search ends after this many remedies

class Search {
 public:
  Search(const StepPlan& plan, const Request& request, const Machine& machine)
      : plan_(plan), request_(request), machine_(machine) {}

  std::vector<Remedy> find() {
    for (const MemoryChange& change : memory_changes(plan_.run, plan_.memory, plan_.variant)) {
      if (found_.size() == kEnough) break;
      if (change.more_devices) more_devices();
      for (const MemoryTrial& trial : change.trials)
        if (trial.share ? fits_share(trial) : fits(trial, machine_)) break;
    }
    return std::move(found_);
  }

 private:
  // Adds the trial to `found_` and returns true if the step fits with it. If it needs more host memory, the text says
  // how much. A trial that the model or the compiler does not allow counts as not fitting.
  bool fits(const MemoryTrial& trial, const Machine& machine) {
    try {
      const Run run = request_.resolve(machine.run_target(), Purpose::kTraining, trial.variant);
      if (held_bytes(run, fullest_shape(run.batch)) > machine.memory().limit) return false;
      say_work("trying " + trial.text);
      StepPlan plan = plan_step(request_, trial.variant, machine);
      if (!plan.memory.fits()) return false;
      const int64_t host = plan.memory.host();
      const std::string needs =
          host > plan_.memory.host() ? fmt::format(" ({} of host memory for each device)", size_text(host)) : "";
      found_.push_back({trial.text + needs, std::move(plan.memory)});
      return true;
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
      return false;
    }
  }

  // Does the same for a trial that does not change the step.
  bool fits_share(const MemoryTrial& trial) {
    MemoryTable memory = plan_.memory;
    memory.share = *trial.share;
    if (!memory.fits()) return false;
    found_.push_back({trial.text, std::move(memory)});
    return true;
  }

  // More devices compute more rows at a time. Keeps the rows per step with fewer micro-batches if the numbers divide.
  void more_devices() {
    const int64_t micro_batches = plan_.run.batch.micro_batches;
    for (const int64_t times : {2, 4, 8}) {
      const std::optional<Machine> larger = machine_.multiplied(times);
      if (!larger) return;
      Variant changed = plan_.variant;
      changed.any_device_count = true;
      const MeshAxes& mesh = plan_.mesh;
      std::vector<std::string> lines;  // what the recipe must say
      if (request_.places().has("device_count")) lines.push_back(fmt::format("device_count: {}", larger->count()));
      const bool same_rows = micro_batches % times == 0;
      if (request_.names_mesh() || plan_.variant.mesh) {
        std::map<std::string, int64_t> wider;
        for (const auto& [axis, size] : mesh.axes) wider[axis] = size;
        wider["fsdp"] = mesh.size_of("fsdp") * times;
        lines.push_back(mesh_key(wider));
        if (plan_.variant.mesh)
          lines.push_back(fmt::format("per_device_train_batch_size: {}", plan_.run.rows_per_device));
        changed.mesh = std::move(wider);
      }
      if (same_rows) {
        changed.gradient_accumulation_steps = micro_batches / times;
        lines.push_back(fmt::format("gradient_accumulation_steps: {}", micro_batches / times));
      }
      const int64_t hosts = larger->hosts();
      const std::string text =
          fmt::format("{}{}{}{} ({})", larger->title(),
                      hosts > 1 ? fmt::format(" ({} hosts of {})", hosts, larger->count() / hosts) : "",
                      lines.empty() ? "" : " with ", fmt::join(lines, ", "),
                      same_rows ? "the same number of rows per step"
                                : fmt::format("{} rows per step instead of {}", plan_.rows * times, plan_.rows));
      if (fits({text, std::move(changed)}, *larger)) return;
    }
  }

  const StepPlan& plan_;
  const Request& request_;
  const Machine& machine_;
  std::vector<Remedy> found_;
};

}  // namespace

std::vector<Remedy> find_remedies(const StepPlan& plan, const Request& request, const Machine& machine) {
  return Search(plan, request, machine).find();
}

}  // namespace fettle
