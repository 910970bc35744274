// Defines dataset_items, which reads the value of `dataset` or `eval_dataset`.
#pragma once

#include <yaml-cpp/yaml.h>

namespace fettle {

// Returns the items of the value as texts. An item that is a map is an entry of dataset_info.json and becomes its JSON
// text. A YAML file becomes the data sets that it lists. Throws UserError for such a file that cannot be read.
YAML::Node dataset_items(const YAML::Node& value);

}  // namespace fettle
