#include "train/plan.h"

#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "checkpoint/repository.h"
#include "runtime/plugin.h"
#include "runtime/targets.h"
#include "runtime/topology.h"
#include "step/shards.h"
#include "step/step.h"
#include "step/step_programs.h"

namespace fettle {
namespace {

// NAME, NAME:DEVICES or NAME:HOSTSxDEVICES.
struct TargetWords {
  std::string name;
  int64_t hosts = 1, devices = 1;
};

TargetWords parse_target(const std::string& text) {
  static const std::regex form("([^:]+)(:(([1-9][0-9]{0,4})x)?([1-9][0-9]{0,4}))?");
  std::smatch match;
  if (!std::regex_match(text, match, form))
    throw UserError("target: '{}' is not NAME, NAME:DEVICES or NAME:HOSTSxDEVICES (a100-80:2x8)", text);
  return {match[1], match[4].matched ? std::stoll(match[4]) : 1, match[5].matched ? std::stoll(match[5]) : 1};
}

struct Planned {
  MemoryTable memory;
  int64_t flops = 0;  // of a step, over all devices
  double compile_seconds = 0;
  double arithmetic_seconds = 0;  // at the data sheet's bf16 rate; 0 = not known
};

Planned plan_here(const Recipe& recipe, const ModelRepository& repository, const std::string& config, int64_t length) {
  Devices devices(recipe);
  const Job job = make_job(recipe, repository.config(), config, devices.count());
  StepPrograms programs(devices, job);
  return {programs.memory(length), programs.at(length).flops};
}

Planned plan_target(const Recipe& recipe, const ModelRepository& repository, const std::string& config,
                    int64_t length) {
  const TargetWords words = parse_target(recipe.target);
  const Target& target = target_named(words.name);
  const int64_t count = words.hosts * words.devices;
  const Job job = make_job(recipe, repository.config(), config, count);
  const Program program = build_train_step(job, length);
  const Topology topology = Topology::create(Plugin::load(recipe.plugin.empty() ? target.plugin : recipe.plugin),
                                             target.config, fmt::format("1x{}x{}", words.hosts, words.devices));
  const CompiledProgram compiled =
      topology.compile(program.text(recipe.tf32), {.num_partitions = static_cast<int>(count)});
  Planned out{memory_table(job, length, compiled.memory_stats(), target.memory_bytes,
                           fmt::format("{} x {}", count, target.title)),
              program.flops()};
  out.arithmetic_seconds = static_cast<double>(out.flops) / (static_cast<double>(count) * target.bf16_tflops * 1e12);
  return out;
}

int show_shards(const Recipe& recipe, const PlanOptions& options, const ModelRepository& repository,
                const std::string& config, int64_t length, std::ostream& out) {
  int64_t count = 0;
  std::string title;
  if (recipe.target.empty() || recipe.target == "this") {
    const Devices devices(recipe);
    count = devices.count();
    title = devices.title();
  } else {
    const TargetWords words = parse_target(recipe.target);
    count = words.hosts * words.devices;
    title = fmt::format("{} x {}", count, target_named(words.name).title);
  }
  const Job job = make_job(recipe, repository.config(), config, count);
  const std::vector<PlacedArray> arrays = placed_arrays(job, length);
  const MeshAxes& mesh = job.sharding.mesh();
  if (options.json) {
    out << nlohmann::json{{"device", title}, {"shards", placed_json(arrays, mesh)}}.dump(2) << "\n";
    return 0;
  }
  std::vector<std::string> axes;
  for (const auto& [axis, size] : mesh.axes) axes.push_back(fmt::format("{} {}", axis, size));
  out << fmt::format("where a step's arrays lie on {}{}; boxes name the devices that hold a part\n\n{}", title,
                     axes.empty() ? "" : fmt::format(", mesh {}", fmt::join(axes, " x ")),
                     format_placed(arrays, mesh, options.colour));
  return 0;
}

}  // namespace

int run_plan(const Recipe& recipe, const PlanOptions& options, std::ostream& out) {
  require_keys(recipe, {"model_name_or_path"}, "plan");
  const ModelRepository repository =
      ModelRepository::open(recipe.model_name_or_path, ModelRepository::Weights::kIgnored);
  const std::string config = (repository.folder() / "config.json").string();
  const int64_t length = (recipe.cutoff_len + 7) / 8 * 8;
  const bool here = recipe.target.empty() || recipe.target == "this";
  if (options.shards) return show_shards(recipe, options, repository, config, length, out);
  const auto start = std::chrono::steady_clock::now();
  Planned plan = (here ? plan_here : plan_target)(recipe, repository, config, length);
  plan.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (options.json) {
    nlohmann::json json{{"per_device", to_json(plan.memory)},
                        {"fits", plan.memory.fits()},
                        {"step", {{"flops", plan.flops}}},
                        {"compile_seconds", plan.compile_seconds}};
    if (plan.arithmetic_seconds > 0) json["step"]["arithmetic_seconds_bound"] = plan.arithmetic_seconds;
    out << json.dump(2) << "\n";
  } else {
    out << fmt::format("a step for rows of {} tokens, compiled in {:.1f} s\n{}\n", length, plan.compile_seconds,
                       format_memory_table(plan.memory));
    out << fmt::format("{:.3g} FLOPs a step (matrix products, recomputation included)\n",
                       static_cast<double>(plan.flops));
    if (plan.arithmetic_seconds > 0)
      out << fmt::format("at least {:.3g} s a step by arithmetic alone, at the data sheet's bf16 rate\n",
                         plan.arithmetic_seconds);
  }
  return plan.memory.fits() ? 0 : static_cast<int>(ExitCode::kDoesNotFit);
}

}  // namespace fettle
