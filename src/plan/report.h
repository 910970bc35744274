// Formats a plan as text for people and as JSON for scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/mesh_choice.h"
#include "plan/remat_choice.h"
#include "plan/remedies.h"
#include "plan/step_plan.h"

namespace fettle {

// The results of the command.
struct PlanResult {
  StepPlan plan;
  std::optional<MeshChoice> choice;             // with `mesh: auto`
  std::optional<RematChoice> remat;             // with `gradient_checkpointing: auto`
  std::vector<Remedy> remedies;                 // when the plan does not fit
  std::optional<int64_t> evaluation_peak = {};  // nullopt: the run does not evaluate

  bool evaluation_fits() const { return !evaluation_peak || plan.memory.has_room_for(*evaluation_peak); }
  bool fits() const { return plan.memory.fits() && evaluation_fits(); }
};

// Returns the plan as JSON. Its keys are a stable interface, described in docs/plan.md.
nlohmann::json to_json(const PlanResult& result);
std::string format_plan(const StepPlan& plan);
std::string format_evaluation(const PlanResult& result);  // "" if the run does not evaluate
std::string format_remedies(const std::vector<Remedy>& remedies);

}  // namespace fettle
