#include "plan/command.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/repository.h"
#include "plan/fit.h"
#include "plan/report.h"
#include "run/labels.h"
#include "step/make_job.h"
#include "step/state/shards.h"

namespace fettle {
namespace {

std::optional<FitBy> fit_by(const std::string& word) {
  if (word.empty()) return std::nullopt;
  if (word == "batch") return FitBy::kBatch;
  if (word == "seq") return FitBy::kSequence;
  throw UserError("--fit: '{}' is neither batch nor seq", word);
}

int show_shards(const Recipe& recipe, const PlanOptions& options, const ConfigFile& config, std::ostream& out) {
  if (recipe.mesh_is_auto())
    info(
        "mesh: auto is chosen by compiling, which --shards does not: shown are all devices on fsdp; give the mesh that "
        "`fettle plan` chose");
  const MachineSize machine = machine_size(recipe);
  const Job job = make_job(recipe, config.json, config.file, machine.count());
  const std::vector<PlacedArray> arrays = placed_arrays(job, job.longest_row());
  const MeshAxes& mesh = job.sharding.mesh();
  if (options.json) {
    out << nlohmann::json{{"device", machine.title}, {"shards", placed_json(arrays, mesh)}}.dump(2) << "\n";
    return 0;
  }
  out << fmt::format("where a step's arrays lie on {}, {}; boxes name the devices that hold a part\n\n{}",
                     machine.title, mesh_title(mesh), format_placed(arrays, mesh, options.colour));
  return 0;
}

}  // namespace

int run_plan(const Recipe& asked, const PlanOptions& options, std::ostream& out) {
  require_keys(asked, {"model_name_or_path"}, "plan");
  const std::optional<FitBy> by = fit_by(options.fit);
  const ModelRepository repository =
      ModelRepository::open(asked.model_name_or_path, ModelRepository::Weights::kIgnored);
  const ConfigFile config{repository.config(), (repository.folder() / "config.json").string()};
  const auto labels = settled_labels(asked, config.json, config.file, ReadLabels::kIfUnnamed);
  const Recipe recipe = settled_recipe(asked, labels, config.json);
  if (options.shards) return show_shards(recipe, options, config, out);
  const Machine machine = Machine::of(recipe);

  PlanResult result;
  if (recipe.mesh_is_auto()) {
    result.choice = choose_mesh(recipe, config, machine);
    result.plan = *result.choice->taken().plan;
    if (by) result.plan = largest_fit(result.plan.recipe, config, machine, *by);
  } else {
    live_line(fmt::format("compiling the step for {}", machine.title()));
    result.plan = by ? largest_fit(recipe, config, machine, *by) : plan_step(recipe, config, machine);
  }
  if (!options.json) {
    if (result.choice) out << format_choice(*result.choice) << "\n";
    out << format_plan(result.plan) << std::flush;
  }
  const bool fits = result.plan.memory.fits();
  if (!fits) {
    result.remedies = find_remedies(result.plan, config, machine);
    if (!options.json) out << format_remedies(result.remedies);
  }
  if (options.json) out << to_json(result).dump(2) << "\n";
  return fits ? 0 : static_cast<int>(ExitCode::kDoesNotFit);
}

}  // namespace fettle
