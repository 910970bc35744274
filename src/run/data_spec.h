// Defines data_spec, which collects what a recipe says about its data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/data_spec.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// `labels` is the result of settled_labels, `cutoff_len` that of cutoff_len_of. Throws UserError for malformed
// interleave_probs.
DataSpec data_spec(const Recipe& recipe, const Stage& stage, const std::optional<LabelSet>& labels, int64_t cutoff_len);

// Returns the number of token positions in an encoder's position table; 0 for other models, which may read longer
// texts.
int64_t encoder_positions(const nlohmann::json& config);
// Returns the recipe's cutoff_len. When the recipe does not set it, a stage that trains labels uses at most the
// positions of an encoder.
int64_t cutoff_len_of(const Recipe& recipe, const Stage& stage, const nlohmann::json& config);

}  // namespace fettle
