// Defines settled_labels: the labels that a recipe trains or evaluates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/classes/settle_labels.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Returns the recipe's keys about labels.
LabelRequest label_request(const Recipe& recipe);

// Whether the rows may be read to learn their labels. A plan needs only their number.
enum class ReadLabels { kAlways, kIfUnnamed };

// The labels of a stage that trains labels; none for other stages. `config` is the model's config.json, called
// `config_file` in messages. Throws UserError as settle_labels and check_taught do.
std::optional<LabelSet> settled_labels(const Recipe& recipe, const Stage& stage, const nlohmann::json& config,
                                       const std::string& config_file, ReadLabels read = ReadLabels::kAlways);

}  // namespace fettle
