// Defines how a YAML value becomes the value of a recipe key.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

#include "config/key_places.h"
#include "config/keys.h"

namespace fettle {

// A value that the user gave, and where it was given ("recipe.yaml:12" or "override 'lora_rank=8'").
struct GivenValue {
  YAML::Node node;
  std::string where;
  SetBy by = SetBy::kRecipe;
  std::string meant_by = {};  // the other tool's key whose translation this is; "": none

  // Returns another value that was given in the same place, by the same person.
  GivenValue with(const YAML::Node& other) const { return {other, where, by, meant_by}; }
};

bool is_map(const Key& key);  // the key's value is a map

// Sets the key's member of `recipe`. A null value sets the default. Throws UserError with given.where, the key, what
// was found and what was wanted.
void set_value(Recipe& recipe, const Key& key, const GivenValue& given);

// Sets one entry of a key whose value is a map. For "mesh.fsdp", `key` is mesh and `entry` is "fsdp". Throws UserError
// if the value of `key` is not a map, or if `key` does not take this entry or value.
void set_entry(Recipe& recipe, const Key& key, const std::string& entry, const GivenValue& given);

// Returns true for true, yes, on, y and 1; false for false, no, off, n and 0; nullopt for other texts. Upper and lower
// case are the same.
std::optional<bool> bool_from_text(const std::string& text);
// Returns whether the node is a text that means true.
bool is_on(const YAML::Node& node);

// Describes a node for messages: the quoted text of a scalar, "a list", "a map" or "nothing".
std::string describe_node(const YAML::Node& node);
// Returns the name in a map's key; "?" if the key is not a name.
std::string key_text(const YAML::Node& key);

}  // namespace fettle
