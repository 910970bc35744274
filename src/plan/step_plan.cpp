#include "plan/step_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "models/blocks/moe.h"
#include "plan/compiled/hlo.h"
#include "step/make_job.h"
#include "step/step.h"

namespace fettle {

double StepPlan::seconds_bound() const {
  return timeline ? std::max({timeline->arithmetic_bound, timeline->memory_bound, timeline->link_bound,
                              timeline->host_bound})
                  : 0;
}

namespace {

Assumptions assumptions_for(const Job& job, int64_t length) {
  Assumptions out;
  if (job.model.config.num_experts > 0)
    out.expert_blocks = balanced_blocks(job.model.config, job.sharding.mesh(), job.sequences_per_micro_batch(), length);
  return out;
}

}  // namespace

StepPlan plan_step(const Recipe& recipe, const ConfigFile& config, const Machine& machine) {
  const auto start = std::chrono::steady_clock::now();
  Job job = make_job(recipe, config.json, config.file, machine.count());
  use_float8_of(job, machine.capability(), machine.title());
  const int64_t length = job.longest_row();
  const Program program = build_train_step(job, length);
  const CompiledStep compiled = machine.compile(program, recipe.tf32);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  StepPlan plan{.recipe = recipe,
                .mesh = job.sharding.mesh(),
                .rows = job.rows_per_micro_batch() * recipe.gradient_accumulation_steps,
                .length = length,
                .memory = memory_table(job, length, compiled.memory, machine.memory_limit(), machine.title(),
                                       machine.allowance()),
                .flops = program.flops(),
                .compile_seconds = seconds.count()};
  const HloModule module = read_hlo(compiled.optimized);
  plan.host_traffic = host_traffic_of(module);
  plan.traffic = traffic_of(module, plan.mesh, machine.devices_per_host());
  if (machine.target())
    plan.timeline =
        estimate(module, plan.mesh, *machine.target(), machine.devices_per_host(), assumptions_for(job, length));
  return plan;
}

}  // namespace fettle
