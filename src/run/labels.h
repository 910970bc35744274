// Defines settled_labels: the labels that a recipe of stage cls trains or evaluates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "config/recipe.h"
#include "data/classes/settle_labels.h"

namespace fettle {

// What the recipe asks of the labels.
LabelRequest label_request(const Recipe& recipe);

// Whether the rows may be read to learn their labels. A plan needs only their number.
enum class ReadLabels { kAlways, kIfUnnamed };

// The labels of stage cls; none for other stages. `config` is the model's config.json, called `config_file` in
// messages. Throws UserError as settle_labels and check_taught do, for keys that stage cls refuses, and for the label
// keys in other stages.
std::optional<LabelSet> settled_labels(const Recipe& recipe, const nlohmann::json& config,
                                       const std::string& config_file, ReadLabels read = ReadLabels::kAlways);

// The recipe with these labels and with the cutoff_len of cutoff_len_of, for code that reads both from the recipe.
Recipe settled_recipe(Recipe recipe, const std::optional<LabelSet>& labels, const nlohmann::json& config);

}  // namespace fettle
