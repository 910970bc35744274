// Defines classifier_config, which makes the config.json of a classifier in Transformers' form.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/classes/taught_labels.h"
#include "models/model.h"

namespace fettle {

// Returns the fields of classifier_config() that an adapter stores in its file classifier.json (kAdapterLabels).
nlohmann::json adapter_labels(const nlohmann::json& classifier_config);

// Returns config.json of the classifier. `config` is the base model's config.json. `problem_type` is empty for a reward
// model. Without `names`, the labels are LABEL_0, LABEL_1, ...
nlohmann::json classifier_config(nlohmann::json config, const Model& model, const std::string& problem_type,
                                 const std::vector<std::string>& names);

}  // namespace fettle
