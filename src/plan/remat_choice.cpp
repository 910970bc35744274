#include "plan/remat_choice.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/size_text.h"
#include "plan/say_work.h"
#include "runtime/vendors/vendor.h"
#include "step/memory/memory_table.h"
#include "step/step.h"

namespace fettle {
namespace {

constexpr int kMostCompiledSteps = 3;

// Estimates the peaks of candidates that were not compiled, on the line through the last two compiled candidates. If
// only one was compiled, assumes that each saved byte adds one byte to the peak.
void estimate_peaks(std::vector<RematCandidate>& candidates, const RematCandidate& last, const RematCandidate* before) {
  double slope = 1;
  if (before != nullptr && before->saved != last.saved)
    slope = static_cast<double>(last.peak - before->peak) / static_cast<double>(last.saved - before->saved);
  for (RematCandidate& candidate : candidates)
    if (!candidate.compiled)
      candidate.peak = last.peak + static_cast<int64_t>(slope * static_cast<double>(candidate.saved - last.saved));
}

// Returns the policies that the run can have. Leaves out a policy that saves at least as many bytes as an earlier
// policy. Also leaves out the policy that saves attention's scores, because writing and reading them takes longer than
// computing them again.
std::vector<RematCandidate> candidates_of(const Run& asked, const BatchShape& shape) {
  std::vector<RematCandidate> out;
  for (const RematPolicy& policy : remat_policies()) {
    const int64_t layers = asked.model.config.num_hidden_layers;
    if (policy.full_percent > 0 && (asked.trains_layers_on_host() || policy.full_layers(layers) == layers)) continue;
    Program program = build_train_step(with_remat(asked, policy), shape);
    const int64_t saved = stacked_bytes(program.block()) / asked.target.count;
    if (out.empty() || saved < out.back().saved) out.push_back({std::string(policy.name), saved});
  }
  const bool scores = out.size() > 1 && out[0].policy == "none" && out[1].policy == "attention";
  if (scores) out.erase(out.begin());
  return out;
}

// Returns the first compiled candidate that fits. If none fits, returns the compiled candidate with the lowest peak,
// and among equal peaks the one that recomputes the least. Peaks may rise although fewer bytes are saved.
size_t best_compiled(const std::vector<RematCandidate>& candidates, int64_t room) {
  size_t best = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i) {
    const RematCandidate& one = candidates[i];
    if (!one.compiled) continue;
    if (one.peak <= room) return i;
    if (best == candidates.size() || one.peak < candidates[best].peak) best = i;
  }
  return best;
}

// Returns a first guess of all memory except the values that the layers save. It consists of the arrays that stay
// between steps, the gradients, and the values that one layer saves with the first policy.
int64_t memory_beside(const Run& run, const std::vector<RematCandidate>& candidates) {
  const MemoryTable held = held_table(run, {}, "");
  const int64_t layers = std::max<int64_t>(1, run.model.config.num_hidden_layers);
  return held.peak + held.gradients + candidates[0].saved / layers;
}

// GPUs are the devices for which a plugin compiles without a device.
bool is_gpu(const RunTarget& target) {
  const Vendor* vendor = vendor_named(target.platform);
  return vendor != nullptr && !vendor->target_platform.empty();
}

std::string at_once(int64_t merged, int64_t micro_batches) {
  if (merged == 1) return "";
  return fmt::format(", and {} of a step's {} micro-batches at once", merged, micro_batches);
}

// "gradient_checkpointing: none, and 4 of a step's 8 micro-batches at once"
std::string format_step(const Run& run) {
  return fmt::format("gradient_checkpointing: {}{}", run.remat.name,
                     at_once(run.merged_micro_batches, run.batch.micro_batches * run.merged_micro_batches));
}

}  // namespace

int64_t stacked_bytes(const Block& block) {
  int64_t total = 0, most_inside = 0;
  for (int32_t id = 0; id < block.size(); ++id) {
    const Loop* loop = block.node(id).loop();
    if (loop == nullptr) continue;
    const std::vector<Shape>& results = block.node(id).results;
    for (size_t r = loop->carries; r < results.size(); ++r) total += results[r].bytes();
    most_inside = std::max(most_inside, stacked_bytes(*loop->body));
  }
  return total + most_inside;
}

size_t least_that_fits(std::vector<RematCandidate>& candidates, int64_t room, int64_t base, const PeakOf& peak_of) {
  // Candidates before `low` do not fit; those after `high` are not needed.
  size_t low = 0, high = candidates.size() - 1;
  bool fits = false;  // `high` was compiled and fits
  const RematCandidate *last = nullptr, *before = nullptr;
  for (RematCandidate& candidate : candidates) candidate.peak = base + candidate.saved;
  for (int compiled = 0; compiled < kMostCompiledSteps; ++compiled) {
    size_t next = low;
    while (next < high && candidates[next].peak > room) ++next;
    if (candidates[next].compiled) break;
    if (compiled + 1 == kMostCompiledSteps && !fits) next = candidates.size() - 1;
    RematCandidate& one = candidates[next];
    one.peak = peak_of(remat_policy(one.policy));
    one.compiled = true;
    before = std::exchange(last, &one);
    estimate_peaks(candidates, *last, before);
    if (one.peak <= room) {
      fits = true;
      high = next;
    } else {
      low = std::min(next + 1, high);
    }
  }
  return best_compiled(candidates, room);
}

RematChoice choose_remat(const Run& asked, const BatchShape& shape, const PeakOf& peak_of) {
  RematChoice choice{.candidates = candidates_of(asked, shape), .room = asked.target.room};
  if (choice.room.bytes == 0) {
    choice.taken = choice.candidates.size() - 1;
    return choice;
  }
  choice.taken =
      least_that_fits(choice.candidates, choice.room.bytes, memory_beside(asked, choice.candidates), peak_of);
  return choice;
}

std::vector<int64_t> merge_factors(const Run& run, const BatchShape& shape) {
  constexpr int64_t kMostPositions = 8192;
  const BatchSpec& batch = run.batch;
  const int64_t positions = positions_per_device(shape, batch) / run.sharding.mesh().size_of("sp");
  std::vector<int64_t> out;
  if (is_gpu(run.target) && run.target.room.bytes > 0 && batch.lines == Lines::kRegrouped && batch.stages == 1)
    for (int64_t times = batch.micro_batches; times > 1; --times)
      if (batch.micro_batches % times == 0 && times * positions <= kMostPositions) out.push_back(times);
  out.push_back(1);
  return out;
}

int64_t merged_as_before(const Run& asked, const BatchShape& shape, const WrittenStep& written) {
  if (written.micro_batches != asked.batch.micro_batches) return 1;
  const std::vector<int64_t> factors = merge_factors(asked, shape);
  return std::ranges::find(factors, written.merged) != factors.end() ? written.merged : 1;
}

RematChoice choose_step(const Run& asked, const ShapeOf& shape_of, const PeakOfRun& peak_of) {
  RematChoice choice;
  for (const int64_t times : merge_factors(asked, shape_of(asked.batch))) {
    const Run run = with_merged(asked, times);
    const BatchShape shape = shape_of(run.batch);
    const PeakOf of_policy = [&](const RematPolicy& policy) { return peak_of(with_remat(run, policy)); };
    if (times == 1) {
      choice = choose_remat(run, shape, of_policy);
      break;
    }
    choice = {.candidates = candidates_of(run, shape), .room = asked.target.room, .merged = times};
    RematCandidate& first = choice.candidates[0];
    const int64_t most = choice.room.bytes / 10 * 9;
    if (memory_beside(run, choice.candidates) + first.saved > most) continue;
    first.peak = of_policy(remat_policy(first.policy));
    first.compiled = true;
    estimate_peaks(choice.candidates, first, nullptr);
    if (first.peak <= most) break;
  }
  choice.micro_batches = asked.batch.micro_batches;
  return choice;
}

Run settle_step(const Run& asked, const ShapeOf& shape_of, Devices& devices, const WrittenStep& written) {
  if (!asked.remat_auto) return asked;
  const PeakOfRun peak_of = [&](const Run& run) {
    live_line(fmt::format("compiling the step with {}", format_step(run)));
    return devices.memory_stats(build_train_step(run, shape_of(run.batch))).peak;
  };
  const auto policies = remat_policies();
  const auto known = std::ranges::find(policies, written.policy, &RematPolicy::name);
  if (known != policies.end()) {
    const int64_t times = merged_as_before(asked, shape_of(asked.batch), written);
    const Run run = with_remat(with_merged(asked, times), *known);
    const MemoryShare& share = devices.memory();
    if (!share.known() || peak_of(run) <= share.limit) {
      info("{}, as in the run that wrote the checkpoint", format_step(run));
      return run;
    }
    warn(
        "the checkpoint was written with {}, but the step does not fit here in this way; losses may differ in their "
        "last digits from those of an uninterrupted run",
        format_step(run));
  }
  const RematChoice choice = choose_step(asked, shape_of, peak_of);
  info("{}", format_remat(choice));
  return with_remat(with_merged(asked, choice.merged), remat_policy(choice.policy()));
}

PlannedRemat plan_remat(const Request& request, Variant variant, const Machine& machine) {
  const Run asked = request.resolve(machine.run_target(), Purpose::kTraining, variant);
  std::map<std::pair<int64_t, std::string_view>, StepPlan> plans;
  const PeakOfRun peak_of = [&](const Run& run) {
    say_work(fmt::format("compiling the step for {} with {}", machine.title(), format_step(run)));
    variant.gradient_checkpointing = run.remat.name;
    variant.per_device_train_batch_size = asked.rows_per_device * run.merged_micro_batches;
    variant.gradient_accumulation_steps = run.batch.micro_batches;
    // Evaluations stay as asked. (KTO's rows, of which an evaluation may need more, are never merged.)
    if (run.merged_micro_batches > 1) variant.per_device_eval_batch_size = asked.eval_rows_per_device;
    const auto [plan, added] =
        plans.emplace(std::pair(run.merged_micro_batches, run.remat.name), plan_step(request, variant, machine));
    return plan->second.memory.peak;
  };
  const RematChoice choice = choose_step(asked, fullest_shape, peak_of);
  const RematPolicy& taken = remat_policy(choice.policy());
  const std::pair key(choice.merged, taken.name);
  if (!plans.contains(key)) peak_of(with_remat(with_merged(asked, choice.merged), taken));
  return {choice, std::move(plans.at(key))};
}

std::string format_remat(const RematChoice& choice) {
  std::string text = fmt::format("gradient_checkpointing: auto chooses {}{}", choice.policy(),
                                 at_once(choice.merged, choice.micro_batches));
  if (choice.room.bytes == 0) return text + ", because the device's memory limit is not known";
  text += fmt::format("; a step may take {} ({})", size_text(choice.room.bytes), choice.room.rule);
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    const RematCandidate& one = choice.candidates[i];
    text += fmt::format("\n  {:<10}{:>12}  {}{}", one.policy, size_text(one.peak),
                        one.compiled ? "compiler's count" : "estimated",
                        i == choice.taken              ? ", taken"
                        : one.peak > choice.room.bytes ? ", does not fit"
                        : i > choice.taken             ? ", recomputes more"
                                                       : "");
  }
  return text;
}

nlohmann::json to_json(const RematChoice& choice) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RematCandidate& one : choice.candidates)
    rows.push_back({{"policy", one.policy}, {"peak_bytes", one.peak}, {"compiled", one.compiled}});
  nlohmann::json out{{"taken", choice.policy()}, {"candidates", rows}, {"micro_batches_at_once", choice.merged}};
  out["room_bytes"] = choice.room.bytes > 0 ? nlohmann::json(choice.room.bytes) : nlohmann::json(nullptr);
  return out;
}

}  // namespace fettle
