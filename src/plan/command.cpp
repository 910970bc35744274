#include "plan/command.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "plan/fit.h"
#include "plan/report.h"
#include "plan/say_work.h"
#include "step/state/placed_arrays.h"

namespace fettle {
namespace {

std::optional<FitBy> fit_by(const std::string& word) {
  if (word.empty()) return std::nullopt;
  if (word == "batch") return FitBy::kBatch;
  if (word == "seq") return FitBy::kSequence;
  throw UserError("--fit: '{}' is unknown; use batch or seq", word);
}

int show_shards(const Request& request, const PlanOptions& options, std::ostream& out) {
  if (request.mesh_is_auto())
    info(
        "--shards compiles nothing, so `mesh: auto` cannot choose a mesh, and the picture shows all devices on fsdp, "
        "or on dp if fsdp cannot split the weights; to choose a mesh, run `fettle plan` without --shards, and then set "
        "`mesh` in the recipe");
  const MachineSize machine = machine_size(request);
  const Run run = request.resolve({.count = machine.count(), .title = machine.title, .capability = machine.capability},
                                  Purpose::kTraining);
  run.remarks.print();
  const std::vector<PlacedArray> arrays = placed_arrays(run, run.batch.longest());
  const MeshAxes& mesh = run.sharding.mesh();
  if (options.json) {
    out << nlohmann::json{{"device", machine.title}, {"shards", placed_json(arrays, mesh)}}.dump(2) << "\n";
    return 0;
  }
  out << fmt::format(
      "where the arrays of a step are stored on {}, {}; each box names the devices that store a part\n\n{}",
      machine.title, mesh_title(mesh), format_placed(arrays, mesh, options.colour));
  return 0;
}

}  // namespace

int run_plan(const Request& request, const PlanOptions& options, std::ostream& out) {
  const std::optional<FitBy> by = fit_by(options.fit);
  if (options.shards) return show_shards(request, options, out);
  const Machine machine = Machine::of(request);

  std::optional<MeshChoice> choice;
  if (request.mesh_is_auto())
    choice = choose_mesh(request, machine);
  else if (!by && !request.remat_is_auto())
    say_work(fmt::format("compiling the step for {}", machine.title()));
  const Variant variant = choice ? choice->taken().variant : Variant{};
  std::optional<StepPlan> fitted;
  if (by) fitted = largest_fit(request, variant, machine, *by);
  std::optional<PlannedRemat> remat;
  if (request.remat_is_auto()) remat = plan_remat(request, fitted ? fitted->variant : variant, machine);
  PlanResult result{.plan = remat    ? remat->plan
                            : fitted ? *fitted
                            : choice ? *choice->taken().plan
                                     : plan_step(request, variant, machine),
                    .choice = choice};
  if (remat) result.remat = remat->choice;
  request.resolve(machine.run_target(), Purpose::kTraining, result.plan.variant).remarks.print();
  if (!options.json) {
    if (result.choice) out << format_choice(*result.choice, machine) << "\n";
    if (result.remat) out << format_remat(*result.remat) << "\n";
    out << format_plan(result.plan) << std::flush;
  }
  result.evaluation_peak = plan_evaluation(result.plan, machine);
  if (!options.json) out << format_evaluation(result) << std::flush;
  if (!result.plan.memory.fits()) {
    result.remedies = find_remedies(result.plan, request, machine);
    if (!options.json) out << format_remedies(result.remedies);
  }
  if (options.json) out << to_json(result).dump(2) << "\n";
  return result.fits() ? 0 : static_cast<int>(ExitCode::kDoesNotFit);
}

}  // namespace fettle
