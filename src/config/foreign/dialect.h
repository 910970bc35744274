// Defines read_dialect, which recognises a recipe of another tool by its keys and translates it.
//
// Keys that differ from Fettle's keys only in their name are rows of the tables in tables.h and keys.h. read_dialect
// handles the rest: other defaults, and keys that must be read together.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fettle {

struct Dialect {
  using Values = std::vector<std::pair<std::string, YAML::Node>>;  // Fettle's keys and values

  std::string tool;                     // "Axolotl"
  Values meant, meant_words;            // what the keys of the file mean, and what the overrides mean
  Values usual;                         // the tool's defaults, for keys that the recipe lacks
  std::set<std::string> handled;        // the file's keys that are already read or have no effect
  std::set<std::string> handled_words;  // the same for overrides
  // Stages in which the tool turns LoRA's dropout off unless disable_dropout is false. The default is that of
  // LLaMA-Factory.
  std::set<std::string> without_dropout = {"dpo", "kto"};
};

// Translates a recipe: `root` has the keys of the file, `all` the keys of the file and the overrides. Both are maps.
// The keys of the file show which tool the recipe is for; if there are none, the overrides do. Returns nullopt for
// recipes in Fettle's own format, which is also the format of LLaMA-Factory before v1. Throws UserError for values that
// cannot be read; the message begins with "FILE:LINE: ".
std::optional<Dialect> read_dialect(const YAML::Node& root, const YAML::Node& all, const std::string& file);

// Returns the value that an override gives `key`, a key of Fettle, under any of its names; an undefined node if there
// is no such override.
YAML::Node override_of(const YAML::Node& root, const YAML::Node& all, std::string_view key);

// Returns whether an override sets `key`, a key of Fettle, under any of its names.
bool is_overridden(const YAML::Node& root, const YAML::Node& all, std::string_view key);

// `list` is the content of a LLaMA-Factory v1 file that lists data sets. Returns each data set as JSON text, in the
// form of an entry of dataset_info.json. Throws UserError, with "FILE:LINE: ", for a data set that cannot be read.
std::vector<std::string> listed_sets(const YAML::Node& list, const std::string& file);

}  // namespace fettle
