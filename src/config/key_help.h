// Defines functions that make the reference of all recipe keys, and the help of some keys, from the table of keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key_text.h"

namespace fettle {

// Return the reference of all keys as Markdown (docs/recipe.md), and as plain text (--help-keys). If `texts` has
// a key, the key's help and values come from there instead of the table of keys.
std::string recipe_reference_markdown(const KeyTexts& texts);
std::string recipe_reference_text(const KeyTexts& texts);
// Returns the help of these keys as plain text: meaning, type and default, in lines of at most 100 columns. Throws
// InternalError when there is no such key.
std::string key_help(const std::vector<std::string_view>& names, const KeyTexts& texts);

}  // namespace fettle
