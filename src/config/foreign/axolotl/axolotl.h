// Defines read_axolotl, which translates a recipe of Axolotl into Fettle's keys.
#pragma once

#include "config/foreign/dialect.h"

namespace fettle {

// Returns whether the recipe is Axolotl's. This is true if the first item of `datasets` is a map with `path`, or if the
// recipe has base_model together with micro_batch_size or sequence_len. A recipe without base_model that has
// model_name_or_path, or a key that only TRL has, is not Axolotl's.
bool is_axolotl(const YAML::Node& root);
// Translates the recipe. `all` has the keys of the file and the overrides. `file` is the recipe's name in messages.
// Throws UserError for values that Fettle does not support.
Dialect read_axolotl(const YAML::Node& root, const YAML::Node& all, const std::string& file);

}  // namespace fettle
