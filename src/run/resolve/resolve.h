// Defines resolve, which makes the Run from a recipe, a model folder and a target.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "run/model_folders.h"
#include "run/run.h"
#include "run/variant.h"

namespace fettle {

struct Recipe;

// A model's config.json, and its name for messages.
struct ModelConfigFile {
  const nlohmann::json& json;
  std::string file;
};

// What a run is resolved from. `stage` may differ from the recipe's: it can be the stage with which `eval` measures.
// For training, the recipe has passed check_stage_keys. `labels` is the result of settled_labels.
struct RunSource {
  const Recipe& recipe;
  const Stage& stage;
  const ModelFolders& models;
  ModelConfigFile config;
  const std::optional<LabelSet>& labels;
};

// Returns the run. An adapter that is trained further keeps its own options (lora_options). Throws UserError on
// combinations that are not possible for this model, mesh or target.
Run resolve(const RunSource& source, const RunTarget& target, Purpose purpose = Purpose::kTraining,
            const Variant& variant = {});

}  // namespace fettle
