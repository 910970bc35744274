// Defines read_handbook_sets, which reads the data sets of the alignment handbook's recipes: `dataset_mixture`, and
// `dataset_mixer` of its first releases.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <vector>

namespace fettle {

struct HandbookSets {
  std::string key;                                 // the recipe's key: dataset_mixture or dataset_mixer
  std::vector<std::string> trained, held_out;      // entries of dataset_info.json as JSON texts
  YAML::Node val_size{YAML::NodeType::Undefined};  // the value of test_split_size; undefined: not given
};

// Returns the data sets of a recipe; nullopt if it has neither key. `file` is the recipe's name in messages. Throws
// UserError, with "FILE:LINE: ", for sets that cannot be read.
std::optional<HandbookSets> read_handbook_sets(const YAML::Node& recipe, const std::string& file);

}  // namespace fettle
