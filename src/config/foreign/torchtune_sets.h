// Defines read_torchtune_sets, which translates the section `dataset` of torchtune's recipes.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "config/foreign/dialect.h"

namespace fettle {

// Reads `dataset`, which is a map or a list of maps, into `out`. An override dataset.KEY replaces one key of the map,
// also in `root`. If another override sets the data sets of the run, the keys that say where the rows are have no
// effect. `root` has the keys of the file, `all` also the overrides. Throws
// UserError, with "FILE:LINE: ", for keys that cannot be read.
void read_torchtune_sets(const YAML::Node& root, const YAML::Node& all, const std::string& file, Dialect& out);

}  // namespace fettle
