#include "plan/mesh_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/size_text.h"
#include "plan/say_work.h"

namespace fettle {
namespace {

constexpr int kCompiled = 4;          // number of candidates to compile, if at least one of them fits
constexpr int kMostCompiled = 8;      // largest number of candidates to compile while none fits
constexpr double kLikeBounds = 0.02;  // lower bounds within 2 % of the smallest one count as equal

// The defaults are the rates of a typical server, for a machine whose rates are not known. Only their ratios matter for
// the choice.
struct Rates {
  double flops = 1e15, memory = 3e12, link = 4e11, network = 5e10;
  int link_peers = 0;  // Target::link_peers
};

Rates rates_of(const Machine& machine) {
  if (!machine.target()) return {};
  const Target& target = *machine.target();
  return {target.bf16_tflops * 1e12, target.memory_gb_per_s * 1e9, target.link_gb_per_s * 1e9,
          target.network_gb_per_s * 1e9, target.link_peers};
}

// Estimates the seconds of a step from sizes alone. The estimate is the time for arithmetic or the time for reading the
// weights, whichever is longer, plus the time of transfers. A micro-batch uses each weight in the forward pass, in the
// backward pass and, with rematerialisation, in the recomputed forward pass. Devices gather the fsdp shards of the
// weights twice per micro-batch. tp sums the activations twice per layer and pass. With sp, devices exchange keys and
// values; in the backward pass, they also exchange the gradients of keys and values in f32.
double guess_seconds(const Run& run, int64_t length, const Machine& machine) {
  const Rates rates = rates_of(machine);
  const ModelConfig& model = run.model.config;
  const MeshAxes& mesh = run.sharding.mesh();
  const double dp = static_cast<double>(mesh.size_of("dp")), fsdp = static_cast<double>(mesh.size_of("fsdp"));
  const double tp = static_cast<double>(mesh.size_of("tp")), sp = static_cast<double>(mesh.size_of("sp"));
  const double bytes = static_cast<double>(byte_size(run.precision.compute));
  const double micro_batches = static_cast<double>(run.batch.micro_batches);
  const double parameters = static_cast<double>(run.model.parameters());
  double weights = parameters * static_cast<double>(byte_size(run.precision.frozen)) / tp;
  for (const QuantisedWeight& weight : run.quantised)
    weights += static_cast<double>(product(weight.base.dims) * weight.base.layer_count()) *
               (weight.format.bits() / 8 - static_cast<double>(byte_size(run.precision.frozen))) / tp;
  const double tokens = static_cast<double>(run.rows_per_device * length) / sp;  // per device and micro-batch
  const double layers = static_cast<double>(model.num_hidden_layers);
  const double passes = run.remat.saves == Remat::kNone ? 2 : 3;
  auto share = [](double ways) { return (ways - 1) / ways; };
  // Returns the seconds in which a device sends `sent` bytes along an axis of `ways` devices. `inside` is the product
  // of the sizes of all later axes of the mesh. If links connect the axis's devices in groups of m, each device sends
  // 1/m of its bytes over the network and the others over links (traffic.h).
  const double linked = static_cast<double>(machine.linked_devices());
  auto sending = [&](double sent, double inside, double ways) {
    const double near = std::clamp(linked / inside, 1.0, ways);
    const double outside = near < ways ? sent / near : 0;
    return outside / rates.network + (sent - outside) / (rates.link * share_of_links(rates.link_peers, near));
  };

  const double flops = 2 * (passes + (run.adapter.lora ? 0 : 1)) * parameters * tokens / tp * micro_batches;
  const double read = passes * weights * micro_batches;
  const double gathered = sending(2 * weights * share(fsdp) * micro_batches, sp * tp, fsdp);
  const double trained = 4 * static_cast<double>(run.count(run.trained)) / tp;
  const double gradients =
      sending(2 * trained * share(dp) / fsdp, sp * tp * fsdp, dp) + sending(trained * share(fsdp), sp * tp, fsdp);
  const double reduced = sending(
      2 * passes * layers * tokens * static_cast<double>(model.hidden_size) * bytes * 2 * share(tp) * micro_batches, sp,
      tp);
  const double keys =
      sending(layers * tokens * sp * static_cast<double>(2 * model.num_key_value_heads * model.head_dim) *
                  (passes * bytes + 4) / tp * share(sp) * micro_batches,
              1, sp);
  return std::max(flops / rates.flops, read / rates.memory) + gathered + gradients + reduced + keys;
}

// Returns the variant with all devices on fsdp.
Variant one_axis(int64_t devices) {
  Variant variant;
  variant.mesh = std::map<std::string, int64_t>{{"fsdp", devices}};
  return variant;
}

double bound(const MeshCandidate& candidate) {
  return candidate.plan->timeline ? candidate.plan->seconds_bound() : candidate.guessed_seconds;
}

double estimated(const MeshCandidate& candidate) {
  return candidate.plan->timeline ? candidate.plan->timeline->seconds : candidate.guessed_seconds;
}

std::string estimate_text(const MeshCandidate& candidate) {
  if (candidate.plan->timeline && !candidate.plan->timeline->unknown_kernels.empty()) return "unknown";
  return fmt::format("{:.3g} s", estimated(candidate));
}

bool fits(const MeshCandidate& candidate) {
  return candidate.plan && candidate.plan->memory.fits();
}

// Returns whether weights, state and batch fit. The step itself needs more memory.
bool may_fit(const MeshCandidate& candidate, const Machine& machine) {
  return machine.memory().limit == 0 || candidate.held_bytes <= machine.memory().limit;
}

}  // namespace

std::vector<MeshCandidate> mesh_candidates(const Request& request, const Machine& machine) {
  std::vector<MeshCandidate> out;
  std::optional<MeshCandidate> smallest;  // the mesh with the fewest bytes per device among those that cannot fit
  std::string why_not;                    // the last mesh that does not divide the model's sizes, and the error
  const Run asked = request.resolve(machine.run_target(), Purpose::kTraining, one_axis(machine.count()));
  const int64_t devices = machine.count();
  for (int64_t tp = 1; tp <= devices; ++tp)
    for (int64_t sp = 1; sp * tp <= devices; ++sp)
      for (int64_t fsdp = 1; fsdp * sp * tp <= devices; ++fsdp) {
        const int64_t dp = devices / (fsdp * sp * tp);
        if (dp * fsdp * sp * tp != devices) continue;
        MeshCandidate candidate;
        candidate.variant.mesh = {{"dp", dp}, {"fsdp", fsdp}, {"tp", tp}, {"sp", sp}};
        candidate.variant.per_device_train_batch_size = asked.rows_per_device * tp * sp;
        if (tp * sp > 1) candidate.variant.per_device_eval_batch_size = asked.eval_rows_per_device * tp * sp;
        try {
          const Run run = request.resolve(machine.run_target(), Purpose::kTraining, candidate.variant);
          const int64_t length = run.batch.longest();
          candidate.text = mesh_title(run.sharding.mesh());
          candidate.held_bytes = held_bytes(run, fullest_shape(run.batch));
          candidate.guessed_seconds = guess_seconds(run, length, machine);
        } catch (const UserError& error) {  // an axis does not divide a size
          why_not = fmt::format("dp {}, fsdp {}, tp {}, sp {}: {}", dp, fsdp, tp, sp, error.what());
          continue;
        }
        if (may_fit(candidate, machine))
          out.push_back(std::move(candidate));
        else if (!smallest || candidate.held_bytes < smallest->held_bytes)
          smallest = std::move(candidate);
      }
  if (out.empty() && smallest) out.push_back(std::move(*smallest));
  if (out.empty())
    throw UserError(
        "mesh: auto: no mesh of {} devices divides the sizes of this model; the last mesh that was tried is {}",
        machine.count(), why_not);
  std::ranges::stable_sort(out, {}, &MeshCandidate::guessed_seconds);
  return out;
}

namespace {

// Compiles the first candidates and chooses among them, as choose_mesh() says.
MeshChoice compile_and_choose(std::vector<MeshCandidate> candidates, const Request& request, const Machine& machine) {
  MeshChoice choice{std::move(candidates)};
  int compiled = 0, fitting = 0;
  std::string refusal;  // the compiler's last error
  for (MeshCandidate& candidate : choice.candidates) {
    // The default mesh (all devices on fsdp) is always compiled, for comparison.
    const bool usual = candidate.variant.mesh->at("fsdp") == machine.count();
    if (!usual && (compiled >= kMostCompiled || (compiled >= kCompiled && fitting > 0))) {
      candidate.verdict = "not compiled";
      continue;
    }
    say_work(fmt::format("compiling the step for {} with the mesh {}", machine.title(), candidate.text));
    ++compiled;
    try {
      candidate.plan = plan_step(request, candidate.variant, machine);
    } catch (const DeviceError& error) {  // the compiler may refuse one mesh and accept others
      warn("{}: {}", candidate.text, error.what());
      candidate.verdict = "the compiler refused it";
      refusal = error.what();
      continue;
    }
    fitting += fits(candidate) ? 1 : 0;
    candidate.verdict = fits(candidate) ? "slower" : "does not fit";
  }
  std::vector<MeshCandidate>& all = choice.candidates;
  auto least = std::min_element(all.begin(), all.end(), [](const MeshCandidate& a, const MeshCandidate& b) {
    return fits(a) != fits(b) ? fits(a) : fits(a) && bound(a) < bound(b);
  });
  if (!fits(*least)) {  // the plan with the least memory comes first, because remedies start from the first plan
    least = std::min_element(all.begin(), all.end(), [](const MeshCandidate& a, const MeshCandidate& b) {
      return a.plan.has_value() != b.plan.has_value() ? a.plan.has_value()
                                                      : a.plan && a.plan->memory.peak < b.plan->memory.peak;
    });
    if (!least->plan) throw DeviceError("mesh: auto: no mesh of {} could be compiled: {}", machine.title(), refusal);
    std::rotate(all.begin(), least, least + 1);
    return choice;
  }
  const double near = bound(*least) * (1 + kLikeBounds);
  for (auto it = all.begin(); it != all.end(); ++it)
    if (fits(*it) && bound(*it) <= near && estimated(*it) < estimated(*least)) least = it;
  least->verdict = "taken";
  std::rotate(all.begin(), least, least + 1);
  std::stable_sort(all.begin() + 1, all.end(), [](const MeshCandidate& a, const MeshCandidate& b) {
    return a.plan.has_value() != b.plan.has_value() ? a.plan.has_value() : a.plan && bound(a) < bound(b);
  });
  return choice;
}

// Returns a message about the rates that were used, because devices do not report the rates of their links.
std::string assumed_rates(const Machine& machine) {
  if (!machine.target())
    return "the rates of these devices are not known, so the times assume the rates of a typical server; `target` can "
           "name a file with the true rates (docs/targets.md)";
  const Target& target = *machine.target();
  return fmt::format(
      "rates of {}: links {:g} GB/s{}; if your devices have other rates, set `target` to a file with their rates "
      "(docs/targets.md)",
      target.title, target.link_gb_per_s,
      machine.linked_devices() == machine.count()
          ? ""
          : fmt::format(", network {:g} GB/s for each device", target.network_gb_per_s));
}

}  // namespace

MeshChoice choose_mesh(const Request& request, const Machine& machine) {
  return compile_and_choose(mesh_candidates(request, machine), request, machine);
}

Variant choose_variant(const Request& request, Devices& devices) {
  if (!request.mesh_is_auto()) return {};
  const Machine machine(devices, request.target());
  std::vector<MeshCandidate> candidates = mesh_candidates(request, machine);
  if (!may_fit(candidates.front(), machine)) return candidates.front().variant;
  const MeshChoice choice = compile_and_choose(std::move(candidates), request, machine);
  info("mesh: auto\n{}{}", format_choice(choice, machine), assumed_rates(machine));
  return choice.taken().variant;
}

std::string format_choice(const MeshChoice& choice, const Machine& machine) {
  const bool several = machine.linked_devices() < machine.count();
  auto row = [&](const MeshCandidate& c, const std::string& peak, const std::string& bound, const std::string& schedule,
                 const std::string& links, const std::string& between) {
    return fmt::format("{:<28}{:>10}{:>12}{:>12}{:>12}{:>14}{}  ", c.text,
                       c.variant.per_device_train_batch_size.value(), peak, bound, schedule, links,
                       several ? fmt::format("{:>15}", between) : "");
  };
  std::string text = fmt::format("{:<28}{:>10}{:>12}{:>12}{:>12}{:>14}{}\n", "mesh", "batch", "peak", "bound",
                                 "schedule", "over links", several ? fmt::format("{:>15}", "between hosts") : "");
  for (const MeshCandidate& c : choice.candidates) {
    if (!c.plan) {
      text +=
          row(c, "", fmt::format("{:.3g} s", c.guessed_seconds), "", "", "") + c.verdict + " (a guess from sizes)\n";
      continue;
    }
    double between = 0;
    for (const Traffic& traffic : c.plan->traffic) between += traffic.network_bytes;
    text += row(c, size_text(c.plan->memory.peak), fmt::format("{:.3g} s", bound(c)), estimate_text(c),
                size_text(static_cast<int64_t>(collective_bytes(c.plan->traffic) - between)),
                size_text(static_cast<int64_t>(between)));
    text += c.verdict;
    if (fits(c) && c.plan->timeline) text += fmt::format("; limited by {}", c.plan->limited_by());
    text += "\n";
  }
  if (choice.taken().plan && choice.taken().plan->run.remat_auto)
    text +=
        "this table is for gradient_checkpointing: full; with auto, a run chooses its policy for the mesh that is "
        "taken\n";
  return text;
}

}  // namespace fettle
