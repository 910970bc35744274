// Defines AxolotlSets: the data sets of Axolotl's recipes as entries of dataset_info.json.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <utility>
#include <vector>

namespace fettle {

class AxolotlSets {
 public:
  // `file` is the recipe, for messages. `pairs`: the rows are preference pairs (rl).
  AxolotlSets(std::string file, bool pairs) : file_(std::move(file)), pairs_(pairs) {}

  // One data set as an item of `dataset`: its name, or an entry of dataset_info.json as JSON. Throws UserError for what
  // Fettle does not have.
  std::string entry(const YAML::Node& set);
  // The same for an item of pretraining_dataset, whose rows are texts.
  std::string texts(const YAML::Node& set);

  // The `chat_template` of each set of conversations so far ("" if it has none), with its place for messages.
  const std::vector<std::pair<std::string, std::string>>& templates() const { return templates_; }

 private:
  std::string file_;
  bool pairs_;
  std::vector<std::pair<std::string, std::string>> templates_;
};

}  // namespace fettle
