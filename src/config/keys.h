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

// The member of Recipe that a key sets; its type is the key's type.
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
  std::vector<std::string_view> aliases = {};  // other tools' names; "outer.inner" is a nested one
  std::vector<std::string_view> values = {};   // allowed texts, or allowed items or names of a map; empty: any
  std::vector<std::string_view> later = {};    // texts that name a feature which this version does not have
  std::vector<std::pair<std::string_view, std::string_view>> spellings = {};  // text read -> text meant
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;       // excludes min itself
  bool below_max = false;       // excludes max itself
  bool share_or_count = false;  // a number below 1 is a share; a number from 1 on must be whole
  bool by_stage = false;        // the stage decides when the recipe does not set the key
  bool may_be_auto = false;     // a map that may also be the word auto, which is stored as {auto: 1}
  bool secret = false;          // the value is read, but never written or reported
};

// The table rows of some groups of keys; keys.cpp has the other groups.
std::vector<Key> method_keys();
std::vector<Key> preference_keys();  // further keys of Group::kMethod
std::vector<Key> training_keys();

// All rows, sorted by group, in the order of the reference.
const std::vector<Key>& recipe_keys();

// The row that has this name or alias; null when none has.
const Key* find_key(std::string_view name_or_alias);

std::string_view group_title(Group group);

// The values that the key takes, in words: "a whole number >= 1", "one of none, dots, full".
std::string describe_type(const Key& key);

// The member's value as one line of yaml ("8", "[all]", "{fsdp: 8}"); "" when it is empty.
std::string value_text(const Recipe& recipe, const Key& key);

}  // namespace fettle
