// Defines functions about all names that a recipe may contain: Fettle's keys with their aliases, and other tools' keys.
#pragma once

#include <string_view>
#include <vector>

namespace fettle {

// Returns all these names, Fettle's first, except names that end in * (foreign/tables.h). Suggestions for misspelt keys
// use these names.
std::vector<std::string_view> known_names();

// Returns whether a known name begins with `name` and a dot, so that `name` may be a map of keys.
bool begins_known_key(std::string_view name);

// Returns whether a key that takes a text also takes a list: a key with one_or_two, and TRL's loss_type, which may be
// the parts of a sum.
bool takes_text_or_list(std::string_view name_or_alias);

}  // namespace fettle
