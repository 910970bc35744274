// Defines AxolotlSets, which translates the data sets of Axolotl's recipes into entries of dataset_info.json. Also
// defines is_short_hub_name.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <utility>
#include <vector>

namespace fettle {

// Returns whether the name of a data set in another tool's recipe can only be a name on the hub without an owner, such
// as imdb: it has no slash, no dot and no pattern, and this folder has neither such a file nor data/dataset_info.json.
bool is_short_hub_name(const std::string& name);

class AxolotlSets {
 public:
  // kReplies: conversations or texts. kPairs: preference pairs (reward models, and all values of `rl` except kto).
  // kRated: rated replies (`rl: kto`).
  enum class Rows { kReplies, kPairs, kRated };

  // `file` is the recipe's name in messages.
  AxolotlSets(std::string file, Rows rows) : file_(std::move(file)), rows_(rows) {}

  // Returns one data set as an item of the key `dataset`: its name, or an entry of dataset_info.json as JSON. Throws
  // UserError for values that Fettle does not support.
  std::string entry(const YAML::Node& set);
  // Returns an item of pretraining_dataset (its rows are texts) as an item of the key `dataset`. Throws like entry().
  std::string texts(const YAML::Node& set);

  // Returns one pair for each set of conversations that entry() has read so far. The first text is the name of the
  // set's template: its `chat_template`, else the template that its `type` names, else "". The second text is
  // "FILE:LINE", for messages.
  const std::vector<std::pair<std::string, std::string>>& templates() const { return templates_; }

 private:
  std::string file_;
  Rows rows_;
  std::vector<std::pair<std::string, std::string>> templates_;
};

}  // namespace fettle
