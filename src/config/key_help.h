// Defines functions that make the reference of all recipe keys, and the help of some keys, from the table of keys.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The help of a recipe key whose valid values are defined in another folder of src.
struct KeyText {
  std::string help;
  std::vector<std::string_view> values;  // allowed values; empty: any
};
using KeyTexts = std::map<std::string_view, KeyText>;  // texts by the names of the keys

// Return the reference of all keys as Markdown (docs/recipe.md), and as plain text (--help-keys). If `texts` has
// a key, the key's help and values come from there instead of the table of keys.
std::string recipe_reference_markdown(const KeyTexts& texts);
std::string recipe_reference_text(const KeyTexts& texts);
// Returns the help of these keys as plain text: meaning, type and default, in lines of at most 100 columns. Throws
// InternalError when there is no such key.
std::string key_help(const std::vector<std::string_view>& names, const KeyTexts& texts);

}  // namespace fettle
