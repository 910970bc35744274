#include "plan/report.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/size_text.h"
#include "step/memory/require_fit.h"

namespace fettle {
namespace {

std::string bytes_text(double bytes) {
  return size_text(static_cast<int64_t>(bytes));
}

std::string seconds_text(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// Names the kernels that the step calls. If it calls none, names the kernels that the recipe turns off, or else those
// that it could select.
std::string format_kernels(const StepPlan& plan) {
  std::vector<std::string> used;
  for (const KernelUse& use : plan.kernels) used.push_back(fmt::format("{}, {} calls", use.kernel, use.calls));
  if (!used.empty()) return fmt::format("kernels: {}\n", fmt::join(used, "; "));
  if (plan.kernels_off.size() == 1)
    return fmt::format("kernels: off by the recipe; this device's default is {}\n", plan.kernels_off[0]);
  if (!plan.kernels_off.empty())
    return fmt::format("kernels: off by the recipe; this device's defaults are {}\n",
                       fmt::join(plan.kernels_off, ", "));
  if (plan.kernels_on_request.empty()) return "";
  return fmt::format(
      "kernels: none; kernels={} selects kernels that are off by default on these devices (docs/kernels.md)\n",
      fmt::join(plan.kernels_on_request, ","));
}

std::string format_pipeline(const StepPlan& plan) {
  if (plan.run.sharding.stages() == 1) return "";
  return fmt::format("pipeline: {} stages, {} micro-batches; a stage has no micro-batch for {:.1f} % of the time\n",
                     plan.run.sharding.stages(), plan.run.batch.micro_batches, 100 * plan.bubble_share());
}

std::string format_traffic(const std::vector<Traffic>& rows) {
  if (rows.empty()) return "";
  std::string text = "one device sends in a step:\n";
  for (const Traffic& row : rows)
    text += fmt::format("  {:<18} over {:<10} {:>6} x {:>12}  {} asynchronous{}\n", row.collective, row.axes,
                        row.executions, bytes_text(row.sent_bytes()),
                        row.asynchronous == row.executions ? "all" : fmt::format("{}", row.asynchronous),
                        row.across_hosts ? fmt::format(", {} of it between hosts", bytes_text(row.network_bytes)) : "");
  return text;
}

std::string format_host_traffic(const HostTraffic& traffic) {
  if (traffic.bytes() == 0) return "";
  return fmt::format(
      "one device copies in a step: {} from the host's memory, {} to it; {:.0f} of {:.0f} copies asynchronous\n",
      bytes_text(traffic.to_device), bytes_text(traffic.to_host), traffic.asynchronous, traffic.executions);
}

std::string format_time(const StepPlan& plan) {
  const Timeline& t = *plan.timeline;
  const double tokens = static_cast<double>(plan.tokens());
  std::string text = "time of a step:\n";
  text += fmt::format("  at least  {:>10} by arithmetic, {} by memory, {} by links{} (data sheets' rates)\n",
                      seconds_text(t.arithmetic_bound), seconds_text(t.memory_bound), seconds_text(t.link_bound),
                      t.host_bound > 0 ? ", " + seconds_text(t.host_bound) + " by the host's link" : "");
  text += fmt::format("            {:>10} = {:.4g} tokens/s at most\n", seconds_text(plan.seconds_bound()),
                      tokens / plan.seconds_bound());
  const std::string parts = fmt::format(
      "{} in kernels limited by arithmetic, {} in kernels limited by memory, {} in transfers ({} of it hidden)",
      seconds_text(t.arithmetic_seconds), seconds_text(t.memory_seconds), seconds_text(t.transfer_seconds),
      seconds_text(t.hidden_seconds));
  if (t.unknown_kernels.empty())
    text +=
        fmt::format("  schedule  {:>10} = {:.4g} tokens/s: {}\n", seconds_text(t.seconds), tokens / t.seconds, parts);
  else
    text += fmt::format(
        "  schedule     unknown: the rate of {0} is not known. If the arithmetic of {0} is left out, the "
        "schedule takes {1}: {2}\n",
        fmt::join(t.unknown_kernels, ", "), seconds_text(t.seconds), parts);
  text += fmt::format("  assuming  {}\n", fmt::join(describe(t.assumptions), ", "));
  constexpr size_t kShown = 5;
  text += "  longest parts:\n";
  for (size_t i = 0; i < std::min(kShown, t.largest.size()); ++i)
    text += fmt::format("    {:>10}  {} at {}\n", seconds_text(t.largest[i].exposed_seconds), t.largest[i].work,
                        t.largest[i].op_name);
  if (!t.unknown_loops.empty())
    text += fmt::format("  loops with an unknown trip count, counted once: {}\n", fmt::join(t.unknown_loops, ", "));
  return text;
}

nlohmann::json traffic_json(const std::vector<Traffic>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const Traffic& row : rows)
    out.push_back({{"collective", row.collective},
                   {"axes", row.axes},
                   {"group", row.group},
                   {"across_hosts", row.across_hosts},
                   {"executions", row.executions},
                   {"asynchronous", row.asynchronous},
                   {"payload_bytes", row.payload_bytes},
                   {"link_bytes", row.link_bytes},
                   {"network_bytes", row.network_bytes}});
  return out;
}

// Returns `value`, or null if the time of a kernel is not known.
nlohmann::json if_known(const Timeline& t, double value) {
  return t.unknown_kernels.empty() ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json time_json(const StepPlan& plan) {
  if (!plan.timeline) return nullptr;
  const Timeline& t = *plan.timeline;
  nlohmann::json largest = nlohmann::json::array();
  for (const Contributor& part : t.largest)
    largest.push_back({{"op_name", part.op_name},
                       {"work", part.work},
                       {"seconds", part.seconds},
                       {"exposed_seconds", part.exposed_seconds}});
  return {{"seconds", if_known(t, t.seconds)},
          {"tokens_per_second", if_known(t, static_cast<double>(plan.tokens()) / t.seconds)},
          {"unknown_kernels", t.unknown_kernels},
          {"arithmetic_seconds", t.arithmetic_seconds},
          {"memory_seconds", t.memory_seconds},
          {"transfer_seconds", t.transfer_seconds},
          {"hidden_seconds", t.hidden_seconds},
          {"exposed_seconds", t.exposed_seconds},
          {"largest", largest},
          {"assumptions", describe(t.assumptions)}};
}

nlohmann::json mesh_json(const std::map<std::string, int64_t>& mesh) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [axis, size] : mesh)
    if (size > 1) out[axis] = size;
  return out;
}

nlohmann::json choice_json(const MeshChoice& choice) {
  nlohmann::json out = nlohmann::json::array();
  for (const MeshCandidate& c : choice.candidates) {
    nlohmann::json row{{"mesh", mesh_json(*c.variant.mesh)},
                       {"per_device_train_batch_size", *c.variant.per_device_train_batch_size},
                       {"guessed_seconds", c.guessed_seconds},
                       {"verdict", c.verdict}};
    if (c.plan) {
      row["peak_bytes"] = c.plan->memory.peak;
      row["seconds_bound"] = c.plan->timeline ? nlohmann::json(c.plan->seconds_bound()) : nlohmann::json(nullptr);
      if (c.plan->timeline) row["seconds"] = if_known(*c.plan->timeline, c.plan->timeline->seconds);
    }
    out.push_back(row);
  }
  return out;
}

}  // namespace

nlohmann::json to_json(const PlanResult& result) {
  const StepPlan& plan = result.plan;
  nlohmann::json mesh = nlohmann::json::object();
  for (const auto& [axis, size] : plan.mesh.axes) mesh[axis] = size;
  nlohmann::json step{{"flops", plan.flops},
                      {"rows", plan.rows},
                      {"length", plan.length},
                      {"tokens", plan.tokens()},
                      {"bubble_share", plan.bubble_share()},
                      {"collective_bytes", static_cast<int64_t>(collective_bytes(plan.traffic))},
                      {"collectives", traffic_json(plan.traffic)},
                      {"from_host_bytes", plan.host_traffic.to_device},
                      {"to_host_bytes", plan.host_traffic.to_host},
                      {"schedule", time_json(plan)},
                      {"seconds_bound", nullptr},
                      {"bounds", nullptr},
                      {"tokens_per_second_bound", nullptr}};
  if (plan.timeline) {
    step["seconds_bound"] = plan.seconds_bound();
    step["bounds"] = {{"arithmetic_seconds", plan.timeline->arithmetic_bound},
                      {"memory_seconds", plan.timeline->memory_bound},
                      {"link_seconds", plan.timeline->link_bound},
                      {"host_seconds", plan.timeline->host_bound}};
    step["tokens_per_second_bound"] = static_cast<double>(plan.tokens()) / plan.seconds_bound();
  }
  nlohmann::json out{{"per_device", to_json(plan.memory)},
                     {"fits", result.fits()},
                     {"evaluation_peak_bytes", nullptr},
                     {"mesh", mesh},
                     {"per_device_train_batch_size", plan.run.rows_per_device},
                     {"gradient_accumulation_steps", plan.run.batch.micro_batches},
                     {"cutoff_len", plan.run.data.cutoff_len},
                     {"step", step},
                     {"compile_seconds", plan.compile_seconds}};
  out["kernels"] = nlohmann::json::array();
  for (const KernelUse& use : plan.kernels)
    out["kernels"].push_back({{"kernel", use.kernel}, {"calls", use.calls}, {"flops", use.cost.flops}});
  if (result.evaluation_peak) out["evaluation_peak_bytes"] = *result.evaluation_peak;
  out["gradient_checkpointing"] = plan.run.remat.name;
  if (result.remat) out["gradient_checkpointing_choice"] = to_json(*result.remat);
  if (result.choice) out["meshes"] = choice_json(*result.choice);
  if (!plan.memory.fits()) {
    out["remedies"] = nlohmann::json::array();
    for (const Remedy& remedy : result.remedies)
      out["remedies"].push_back({{"change", remedy.change}, {"peak_bytes", remedy.memory.peak}});
  }
  return out;
}

std::string format_plan(const StepPlan& plan) {
  std::string text = fmt::format("a step of {} rows of {} tokens on {}, {}; compiled in {:.1f} s\n", plan.rows,
                                 plan.length, plan.memory.device, mesh_title(plan.mesh), plan.compile_seconds);
  text += format_memory_table(plan.memory) + "\n";
  text += fmt::format("{:.3g} FLOPs a step (matrix products over all devices, recomputation included)\n", plan.flops);
  text += format_pipeline(plan);
  text += format_kernels(plan);
  text += format_traffic(plan.traffic);
  text += format_host_traffic(plan.host_traffic);
  if (plan.timeline) text += format_time(plan);
  return text;
}

std::string format_evaluation(const PlanResult& result) {
  if (!result.evaluation_peak) return "";
  const MemoryTable& memory = result.plan.memory;
  std::string text = format_evaluation_peak(result.plan.run, *result.evaluation_peak, result.plan.variant);
  if (!result.evaluation_fits())
    text += fmt::format(", {} more than the limit: it does not fit. To reduce it: {}",
                        size_text(*result.evaluation_peak - memory.share.limit),
                        fmt::join(evaluation_changes(result.plan.run, result.plan.variant), "; "));
  return text + "\n";
}

std::string format_remedies(const std::vector<Remedy>& remedies) {
  if (remedies.empty()) return "the step does not fit, and no change that was tried makes it fit\n";
  std::string text = "the step does not fit; it fits with any one of these changes (each was compiled):\n";
  for (const Remedy& remedy : remedies)
    text += fmt::format("  {}: {} of {} on each device\n", remedy.change, size_text(remedy.memory.peak),
                        size_text(remedy.memory.share.limit));
  return text;
}

}  // namespace fettle
