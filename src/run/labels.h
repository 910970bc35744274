// Defines settled_labels, which finds the labels of the classifier that a recipe trains or evaluates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/classes/settle_labels.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Returns the recipe's keys about labels.
LabelRequest label_request(const Recipe& recipe);

// When Fettle may read the rows to find their labels. kAlways: always. kIfUnnamed: only if the recipe gives no names
// and no number of labels. A plan uses kIfUnnamed, because it needs only the number.
enum class ReadLabels { kAlways, kIfUnnamed };

// Returns the labels if the stage trains a classifier, and nullopt for other stages. `adapters` are the folders of the
// model's adapters, and `config` is the model's config.json, called `config_file` in messages. Throws UserError like
// settle_labels and check_taught, and when the recipe sets `template` for an encoder.
std::optional<LabelSet> settled_labels(const Recipe& recipe, const Stage& stage,
                                       const std::vector<std::string>& adapters, const nlohmann::json& config,
                                       const std::string& config_file, ReadLabels read = ReadLabels::kAlways);

}  // namespace fettle
