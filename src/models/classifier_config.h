// Defines classifier_config: the config.json of a classifier as Transformers writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/classes/taught_labels.h"
#include "models/model.h"

namespace fettle {

// Of it, what kAdapterLabels holds.
nlohmann::json adapter_labels(const nlohmann::json& classifier_config);

// `config` is the base's. `problem_type` is empty for a reward model; without names labels are LABEL_0, LABEL_1, ...
nlohmann::json classifier_config(nlohmann::json config, const Model& model, const std::string& problem_type,
                                 const std::vector<std::string>& names);

}  // namespace fettle
