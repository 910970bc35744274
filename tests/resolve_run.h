// Defines make_run, which makes a Run with its labels from a recipe, in the same way as the commands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/recipe.h"
#include "run/labels.h"
#include "run/model_folders.h"
#include "run/request.h"
#include "run/resolve/resolve.h"
#include "stages/stages.h"

namespace fettle {

inline Run make_run(const Recipe& recipe, const nlohmann::json& config, const std::string& file,
                    const RunTarget& target, Purpose purpose = Purpose::kTraining) {
  const Stage& stage = stage_named(recipe.stage, recipe.where("stage"));
  const ModelFolders models = named_models(recipe);
  const auto labels = settled_labels(recipe, stage, models.adapters, config, file, ReadLabels::kIfUnnamed);
  if (purpose == Purpose::kTraining) check_stage_keys(stage, KeyValues(recipe));
  return resolve({recipe, stage, models, {config, file}, labels}, target, purpose);
}

inline Run make_run(const Recipe& recipe, const nlohmann::json& config, const std::string& file, int64_t devices,
                    Purpose purpose = Purpose::kTraining) {
  return make_run(recipe, config, file, RunTarget{.count = devices}, purpose);
}

}  // namespace fettle
