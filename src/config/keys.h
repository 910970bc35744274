// Defines Key: one row for each recipe key. Reading, checks, help and the key reference all come from these rows.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/recipe.h"

namespace fettle {

// The member of Recipe that a key sets. The type of the member is the type of the key.
using Member =
    std::variant<bool Recipe::*, int64_t Recipe::*, double Recipe::*, std::string Recipe::*,
                 std::optional<int64_t> Recipe::*, std::optional<double> Recipe::*, std::vector<std::string> Recipe::*,
                 std::map<std::string, int64_t> Recipe::*, std::map<std::string, std::string> Recipe::*>;

enum class Group { kModel, kMethod, kData, kTraining, kOutput, kExport, kGeneration, kHardware };

struct Key {
  std::string_view name;
  Group group = Group::kModel;
  Member member;
  std::string_view help;
  std::vector<std::string_view> aliases = {};  // other tools' names; "outer.inner": a nested key
  std::vector<std::string_view> values = {};   // allowed texts, list items or map names; empty: any
  std::vector<std::string_view> later = {};    // values of features that this version lacks
  std::vector<std::pair<std::string_view, std::string_view>> spellings = {};  // pairs of a spelling and its value
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;       // excludes min itself
  bool below_max = false;       // excludes max itself
  bool share_or_count = false;  // below 1, a share; from 1 on, a whole number
  bool unset_differs = false;   // to leave the key out is not the same as to set it to its default
  bool of_one_run = false;      // a new run with the same recipe does not take the value over
  bool one_or_two = false;      // the list has at most two texts; a text is one of them, with its commas
  bool may_be_auto = false;     // the map may also be the word auto, stored as {auto: 1}
  bool secret = false;          // the value is read, but never written or reported
};

// Return the table rows of one group of keys. key_rows/ has a file for each group.
std::vector<Key> model_keys();
std::vector<Key> method_keys();
std::vector<Key> preference_keys();  // further keys of Group::kMethod
std::vector<Key> data_keys();
std::vector<Key> training_keys();
std::vector<Key> output_keys();
std::vector<Key> export_keys();
std::vector<Key> generation_keys();
std::vector<Key> hardware_keys();

// Returns all table rows in the order of docs/recipe.md, sorted by group.
const std::vector<Key>& recipe_keys();

// Returns the table row of the key with this name or alias; null when there is none.
const Key* find_key(std::string_view name_or_alias);

std::string_view group_title(Group group);

// Describes the values that the key takes: "a whole number >= 1", "one of none, dots, full".
std::string describe_type(const Key& key);

// Returns the key's value in `recipe` as one line of YAML ("8", "[all]", "{fsdp: 8}"); "" when it is empty.
std::string value_text(const Recipe& recipe, const Key& key);

// Returns whether a copy of a recipe must have this key, so that the copy means the same. `changed` says whether the
// value differs from the default. `places` are those of the recipe.
bool must_be_said(const Key& key, bool changed, const KeyPlaces& places);

}  // namespace fettle
