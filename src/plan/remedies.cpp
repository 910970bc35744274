#include "plan/remedies.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"

namespace fettle {
namespace {

constexpr size_t kEnough = 3;  // the search ends after this many remedies

// Returns the mesh as a recipe writes it: "mesh: {fsdp: 4, tp: 2}".
std::string mesh_key(const std::map<std::string, int64_t>& mesh) {
  std::vector<std::string> parts;
  for (const auto& [axis, size] : mesh)
    if (size > 1) parts.push_back(fmt::format("{}: {}", axis, size));
  return fmt::format("mesh: {{{}}}", parts.empty() ? "fsdp: 1" : fmt::format("{}", fmt::join(parts, ", ")));
}

class Search {
 public:
  Search(const StepPlan& plan, const Request& request, const Machine& machine)
      : plan_(plan), request_(request), machine_(machine) {}

  std::vector<Remedy> find() {
    const Run& run = plan_.run;
    const bool held_fits = plan_.memory.peak - plan_.memory.temporaries <= plan_.memory.share.limit;
    if (held_fits) {  // if weights and state alone are too large, smaller activations do not help
      if (run.remat.saves != Remat::kFull) {
        Variant changed = plan_.variant;
        changed.gradient_checkpointing = "full";
        attempt("gradient_checkpointing: full", changed, machine_);
      }
      split_hidden();
      fewer_rows();
      shorter_rows();
    }
    fewer_bits();
    offload();
    more_devices();
    if (run.method() == "full" && !run.from_scratch) {
      Variant changed = plan_.variant;
      changed.finetuning_type = "lora";
      attempt("finetuning_type: lora", changed, machine_);
    }
    return std::move(found_);
  }

 private:
  // Adds the change to `found_` and returns true if the step fits with it. If it needs more host memory, the text says
  // how much. A change that the model or the compiler does not allow counts as not fitting. If enough changes were
  // found before, returns true without trying `change`.
  bool attempt(const std::string& change, const Variant& variant, const Machine& machine) {
    if (found_.size() >= kEnough) return true;
    // Without a terminal, lines show that the search goes on.
    stderr_is_terminal() ? live_line("trying " + change) : info("trying {}", change);
    try {
      const Run run = request_.resolve(machine.run_target(), Purpose::kTraining, variant);
      if (held_bytes(run, fullest_shape(run.batch)) > plan_.memory.share.limit) return false;
      StepPlan plan = plan_step(request_, variant, machine);
      if (!plan.memory.fits()) return false;
      const int64_t host = plan.memory.host();
      const std::string needs =
          host > plan_.memory.host() ? fmt::format(" ({} of host memory for each device)", size_text(host)) : "";
      found_.push_back({change + needs, std::move(plan.memory)});
      return true;
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
      return false;
    }
  }

  // With tp, every device stores the whole hidden state that enters a layer, unless the recipe splits it. Tries to
  // split it over tp.
  void split_hidden() {
    const Run& run = plan_.run;
    if (plan_.mesh.size_of("tp") == 1 ||
        !run.sharding.fitting({"act_embed"}, {run.model.config.hidden_size}).dims[0].empty())
      return;
    Variant changed = plan_.variant;
    changed.sharding["act_embed"] = "tp";
    attempt("sharding: {act_embed: tp}", changed, machine_);
  }

  // Tries fewer rows, because temporaries grow with the number of rows. First tries as many rows as should fit, then
  // one row.
  void fewer_rows() {
    const int64_t rows = plan_.run.rows_per_device;
    const auto room = static_cast<double>(plan_.memory.head_room() + plan_.memory.temporaries);
    int64_t fewer =
        static_cast<int64_t>(static_cast<double>(rows) * room / static_cast<double>(plan_.memory.temporaries));
    while (fewer > 1 && rows % fewer != 0) --fewer;
    // With mesh: auto, the recipe's number of rows counts for each device, whatever the mesh; here it counts for a
    // mesh.
    const std::string mesh = plan_.variant.mesh ? mesh_key(*plan_.variant.mesh) + " and " : "";
    for (int64_t size : {fewer, int64_t{1}}) {
      if (size < 1 || size >= rows) continue;
      Variant changed = plan_.variant;
      changed.per_device_train_batch_size = size;
      changed.gradient_accumulation_steps = plan_.run.batch.micro_batches * rows / size;
      if (attempt(fmt::format("{}per_device_train_batch_size: {} with gradient_accumulation_steps: {} (the same number "
                              "of rows per step)",
                              mesh, size, *changed.gradient_accumulation_steps),
                  changed, machine_))
        return;
    }
  }

  void shorter_rows() {
    for (int64_t length = plan_.run.data.cutoff_len / 2, tries = 0; length >= 128 && tries < 2; length /= 2, ++tries) {
      Variant changed = plan_.variant;
      changed.cutoff_len = length;
      if (attempt(fmt::format("cutoff_len: {}", length), changed, machine_)) return;
    }
  }

  void fewer_bits() {
    if (helps_to_quantise(plan_.run, plan_.memory)) {
      Variant changed = plan_.variant;
      changed.quantization_bit = 4;
      attempt("quantization_bit: 4", changed, machine_);
    }
    if (helps_to_use_8_bit_state(plan_.run, plan_.memory)) {
      Variant changed = plan_.variant;
      changed.optim = "adamw_8bit";
      attempt("optim: adamw_8bit", changed, machine_);
    }
  }

  // Tries the optimizer state first: a step reads and writes it once, but reads the weights twice.
  void offload() {
    if (!can_offload(plan_.run)) return;
    Variant changed = plan_.variant;
    const bool held = !plan_.run.offload_optimizer && !plan_.run.state_on_disk();  // the devices hold the state
    if (held) {
      changed.offload_optimizer = true;
      if (attempt("offload_optimizer: true", changed, machine_)) return;
    }
    if (plan_.run.offload_param) return;
    changed.offload_param = true;
    attempt(held ? "offload_param: true with offload_optimizer: true" : "offload_param: true", changed, machine_);
  }

  // More devices compute more rows at a time. Keeps the rows per step with fewer micro-batches if the numbers divide.
  void more_devices() {
    const int64_t micro_batches = plan_.run.batch.micro_batches;
    for (const int64_t times : {2, 4, 8}) {
      if (found_.size() >= kEnough) return;
      const std::optional<Machine> larger = machine_.multiplied(times);
      if (!larger) return;
      Variant changed = plan_.variant;
      changed.any_device_count = true;
      const MeshAxes& mesh = plan_.mesh;
      std::string with_mesh, with_rows;
      if (micro_batches % times == 0) {
        changed.gradient_accumulation_steps = micro_batches / times;
        with_rows = fmt::format(" with gradient_accumulation_steps: {} (the same number of rows per step)",
                                micro_batches / times);
      } else {
        with_rows = fmt::format(" ({} rows per step instead of {})", plan_.rows * times, plan_.rows);
      }
      if (request_.names_mesh() || plan_.variant.mesh) {
        std::map<std::string, int64_t> wider;
        for (const auto& [axis, size] : mesh.axes) wider[axis] = size;
        wider["fsdp"] = mesh.size_of("fsdp") * times;
        with_mesh = " with " + mesh_key(wider);
        if (plan_.variant.mesh)
          with_mesh += fmt::format(", per_device_train_batch_size: {}", plan_.run.rows_per_device);
        changed.mesh = std::move(wider);
      }
      if (attempt(larger->title() + with_mesh + with_rows, changed, *larger)) return;
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
