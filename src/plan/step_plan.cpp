#include "plan/step_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/seconds_since.h"
#include "models/blocks/experts/moe.h"
#include "plan/compiled/hlo.h"
#include "step/disk/update_program.h"
#include "step/memory/require_fit.h"
#include "step/step.h"

namespace fettle {

double StepPlan::bubble_share() const {
  const double idle = static_cast<double>(run.sharding.stages() - 1);
  return idle / (static_cast<double>(run.batch.micro_batches) + idle);
}

double StepPlan::seconds_bound() const {
  return timeline ? std::max({timeline->arithmetic_bound, timeline->memory_bound, timeline->link_bound,
                              timeline->host_bound})
                  : 0;
}

std::string StepPlan::limited_by() const {
  const Timeline& t = *timeline;
  if (seconds_bound() == t.arithmetic_bound) return "arithmetic";
  if (seconds_bound() == t.memory_bound) return "memory";
  if (seconds_bound() == t.host_bound) return "the host's link";
  return t.network_bound > t.link_bound / 2 ? "the network between hosts" : "links";
}

namespace {

Assumptions assumptions_for(const Run& run, int64_t length) {
  Assumptions out{.tf32 = run.precision.tf32};
  if (run.model.config.num_experts > 0)
    out.expert_blocks = balanced_blocks(run.model.config, run.sharding.mesh(), run.batch.sequences, length);
  return out;
}

// Returns the kernels that are off by default and that the step would call if the recipe named them.
std::vector<std::string> kernels_on_request(const Run& run, const BatchShape& shape) {
  std::vector<std::string> out;
  for (const KernelRow& row : kernel_rows()) {
    if (row.platform != run.target.platform || row.automatic(run.target.capability)) continue;
    Run with = run;
    with.target.kernels = {&row};
    if (!build_train_step(with, shape).kernels().empty()) out.emplace_back(row.name());
  }
  return out;
}

// Returns the kernels that `kernels: auto` would select, if the request turns kernels off.
std::vector<std::string> kernels_off(const Request& request, const RunTarget& target) {
  std::vector<std::string> out;
  if (request.devices().kernels != std::vector<std::string>{"off"}) return out;
  for (const KernelRow* row : select_kernels(target.platform, {"auto"}, target.capability))
    out.emplace_back(row->name());
  return out;
}

}  // namespace

StepPlan plan_step(const Request& request, const Variant& variant, const Machine& machine) {
  const auto start = Clock::now();
  const Run run = request.resolve(machine.run_target(), Purpose::kTraining, variant);
  // The lengths of the rows are not known, so the plan assumes that each row has the maximum length. Such rows fill all
  // micro-batches of the step.
  const BatchShape shape = fullest_shape(run.batch);
  const Program program = build_train_step(run, shape);
  const CompiledStep compiled = machine.compile(program, run.precision.tf32);
  const MemoryStats memory = with_updates(
      run, compiled.memory, [&](const Program& update) { return machine.compile(update, run.precision.tf32).memory; });
  const double seconds = seconds_since(start);
  StepPlan plan{.run = run,
                .variant = variant,
                .mesh = run.sharding.mesh(),
                .rows = run.batch.groups_per_step(),
                .length = shape.length,
                .memory = memory_table(run, shape, memory, machine.memory(), machine.title()),
                .flops = program.flops(),
                .kernels = program.kernels(),
                .kernels_off = kernels_off(request, machine.run_target()),
                .compile_seconds = seconds};
  if (plan.kernels.empty()) plan.kernels_on_request = kernels_on_request(run, shape);
  const HloModule module = read_hlo(compiled.optimized);
  plan.host_traffic = host_traffic_of(module);
  plan.traffic = traffic_of(module, plan.mesh, machine.linked_devices());
  if (machine.target())
    plan.timeline =
        estimate(module, plan.mesh, *machine.target(), machine.linked_devices(), assumptions_for(run, shape.length));
  return plan;
}

std::optional<int64_t> plan_evaluation(const StepPlan& plan, const Machine& machine) {
  const Run& run = plan.run;
  if (run.length.evaluate.every == Interval::Every::kNever) return std::nullopt;
  const Program program = build_eval_step(run, fullest_shape(run.eval_batch));
  return evaluation_peak(run, plan.memory, machine.compile(program, run.precision.tf32).memory);
}

}  // namespace fettle
