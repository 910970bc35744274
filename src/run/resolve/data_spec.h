// Defines data_spec, which collects the recipe's keys about data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/data_spec.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Returns the recipe's settings for the data. `labels` is the result of settled_labels, and `cutoff_len` is the result
// of cutoff_len_of. Throws UserError for malformed interleave_probs.
DataSpec data_spec(const Recipe& recipe, const Stage& stage, const std::optional<LabelSet>& labels, int64_t cutoff_len);

// Returns the recipe's cutoff_len. If the recipe does not set the key and the stage trains an encoder as a classifier,
// the result is at most the number of positions of this encoder. `config` is the model's config.json, called `file` in
// messages. Throws UserError for a field of an encoder's config that is wrong or not supported.
int64_t cutoff_len_of(const Recipe& recipe, const Stage& stage, const nlohmann::json& config, const std::string& file);

}  // namespace fettle
