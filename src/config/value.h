// Defines how a yaml value becomes a member of Recipe, and how a member becomes yaml text.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>

#include "config/keys.h"

namespace fettle {

// A value as it was given: the node, and where ("recipe.yaml:12" or "override 'lora_rank=8'").
struct GivenValue {
  YAML::Node node;
  std::string where;
};

// Sets the key's member. A null value sets the default. Throws UserError with the place, the key, what was found and
// what was wanted.
void set_value(Recipe& recipe, const Key& key, const GivenValue& given);

// Sets one entry of a map-typed key ("mesh.fsdp").
void set_entry(Recipe& recipe, const Key& key, const std::string& entry, const GivenValue& given);

// The bool that the text means in yaml 1.1 (true, yes, on, y, 1, ... in any case); nothing for other texts.
std::optional<bool> bool_from_text(const std::string& text);

// The scalar's text, or "a list", "a map", "nothing".
std::string describe_node(const YAML::Node& node);

}  // namespace fettle
