// Defines read_dialect: a recipe of another tool's, recognised by its keys, with what that tool means by them.
//
// Keys that only have another name are rows of the tables (foreign.h, keys.h). Here is the rest: other defaults, and
// keys that have to be read together.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fettle {

struct Dialect {
  std::string tool;                                       // "Axolotl"
  std::vector<std::pair<std::string, YAML::Node>> meant;  // keys of the recipe with their values, from `handled`
  std::vector<std::pair<std::string, YAML::Node>> usual;  // the tool's defaults, for keys that are not given
  std::set<std::string> handled;                          // the file's keys that `meant` stands for
};

// `root` is the recipe as a map. Returns nullopt for recipes of LLaMA-Factory's first form and of Fettle's own.
// Throws UserError for values that cannot be read, "FILE:LINE: ..." as `where` says of a node.
std::optional<Dialect> read_dialect(const YAML::Node& root, const std::string& file);

// The data sets that a file of LLaMA-Factory v1 lists, each as an entry of dataset_info.json, as JSON.
std::vector<std::string> listed_sets(const YAML::Node& list, const std::string& file);

}  // namespace fettle
