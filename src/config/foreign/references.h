// Defines resolve_references, which replaces OmegaConf's references in a recipe, such as ${output_dir}/logs.
#pragma once

#include <yaml-cpp/yaml.h>

#include <set>
#include <string>

namespace fettle {

// Replaces ${KEY} and ${OUTER.KEY} in the texts of `root` by the values of these keys in `all`, which has the keys of
// the file and the overrides. Returns the names KEY and OUTER. Throws UserError, with "FILE:LINE: ", for a key that is
// missing or has no value of its own, and for OmegaConf's functions (${env:HOME}).
std::set<std::string> resolve_references(YAML::Node root, const YAML::Node& all, const std::string& file);

}  // namespace fettle
