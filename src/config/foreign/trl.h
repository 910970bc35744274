// Defines read_trl, which translates recipes of TRL: its defaults, and keys whose meaning depends on the stage. Also
// defines has_key_of_trl, is_trl and warn_of_unset_method.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "config/foreign/dialect.h"

namespace fettle {

// Returns whether `root` gives a key that only TRL has. test_split_size is one beside a list of maps `datasets`.
bool has_key_of_trl(const YAML::Node& root);

// Returns whether the keys of `root` are typical of TRL. `all` has the keys of the file and the overrides. Keys that
// short recipes of Fettle have, too, count only if `all` has no key of Fettle for the data set or the method.
bool is_trl(const YAML::Node& root, const YAML::Node& all);

// For a recipe that is no other tool's: warns that LoRA is the default if the recipe names no method and has keys that
// TRL's recipes have, too. `all` has the keys of the file and the overrides.
void warn_of_unset_method(const YAML::Node& all);

// Translates a recipe: `root` has the keys of the file, `all` these keys and the overrides, which share their nodes
// with `root`. `file` is the recipe's name in messages. Warns when Fettle does not follow a default of TRL. Throws
// UserError for data sets that cannot be read.
Dialect read_trl(const YAML::Node& root, const YAML::Node& all, const std::string& file);

}  // namespace fettle
