// Defines settle_labels: what a run of stage cls teaches, from the recipe, the model, or the rows' labels.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/recipe.h"

namespace fettle {

// The recipe with problem_type, num_labels and id2label set, as they are in stage cls from then on. What it leaves
// empty is that of the model, if the adapter's classifier.json or the model's config.json (`config`, called
// `config_file`) is a classifier's; else it is read off the label column of `dataset`, of all rows: names in the order
// of their letters, numbers from 0 on as they are, others in their order as names; lists are several labels a row,
// numbers with a fraction a regression. Names that nothing gives are LABEL_0, ... A cutoff_len that the recipe does not
// set is at most the positions that an encoder has. Other stages' recipes are given back as they are. Throws UserError
// for labels of several kinds, when there is no data set to read them off, for keys that contradict each other or the
// stage, and for the keys of labels in other stages.
Recipe settle_labels(const Recipe& recipe, const nlohmann::json& config, const std::string& config_file);

}  // namespace fettle
