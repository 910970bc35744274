#include "plan/remat_choice.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/size_text.h"
#include "step/memory_table.h"
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
  RematChoice choice{candidates_of(asked, shape), 0, asked.target.room};
  if (choice.room.bytes == 0) {
    choice.taken = choice.candidates.size() - 1;
    return choice;
  }
  const MemoryTable held = held_table(asked, {}, "");
  // A first guess of all memory except the values that the layers save. It consists of the arrays that stay between
  // steps, the gradients, and the values that one layer saves with the first policy.
  const int64_t layers = std::max<int64_t>(1, asked.model.config.num_hidden_layers);
  const int64_t base = held.peak + held.gradients + choice.candidates[0].saved / layers;
  choice.taken = least_that_fits(choice.candidates, choice.room.bytes, base, peak_of);
  return choice;
}

Run settle_remat(const Run& asked, const BatchShape& shape, Devices& devices, const std::string& written) {
  if (!asked.remat_auto) return asked;
  const PeakOf peak_of = [&](const RematPolicy& policy) {
    live_line(fmt::format("compiling the step with gradient_checkpointing: {}", policy.name));
    return devices.memory_stats(build_train_step(with_remat(asked, policy), shape)).peak;
  };
  const auto policies = remat_policies();
  const auto known = std::ranges::find(policies, written, &RematPolicy::name);
  if (known != policies.end()) {
    const MemoryShare& share = devices.memory();
    if (!share.known() || peak_of(*known) <= share.limit) {
      info("gradient_checkpointing: {}, as in the run that wrote the checkpoint", written);
      return with_remat(asked, *known);
    }
    warn(
        "the checkpoint was written with gradient_checkpointing: {}, but the step does not fit here with this policy; "
        "losses may differ in their last digits from those of an uninterrupted run",
        written);
  }
  const RematChoice choice = choose_remat(asked, shape, peak_of);
  info("{}", format_remat(choice));
  return with_remat(asked, remat_policy(choice.policy()));
}

PlannedRemat plan_remat(const Request& request, Variant variant, const Machine& machine) {
  const Run asked = request.resolve(machine.run_target(), Purpose::kTraining, variant);
  std::map<std::string_view, StepPlan> plans;
  const PeakOf peak_of = [&](const RematPolicy& policy) {
    live_line(fmt::format("compiling the step for {} with gradient_checkpointing: {}", machine.title(), policy.name));
    variant.gradient_checkpointing = policy.name;
    return plans.emplace(policy.name, plan_step(request, variant, machine)).first->second.memory.peak;
  };
  const RematChoice choice = choose_remat(asked, fullest_shape(asked.batch), peak_of);
  const RematPolicy& taken = remat_policy(choice.policy());
  if (!plans.contains(taken.name)) peak_of(taken);
  return {choice, std::move(plans.at(taken.name))};
}

std::string format_remat(const RematChoice& choice) {
  std::string text = fmt::format("gradient_checkpointing: auto chooses {}", choice.policy());
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
  nlohmann::json out{{"taken", choice.policy()}, {"candidates", rows}};
  out["room_bytes"] = choice.room.bytes > 0 ? nlohmann::json(choice.room.bytes) : nlohmann::json(nullptr);
  return out;
}

}  // namespace fettle
