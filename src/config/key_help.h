// Defines the reference of all recipe keys and the help of single ones, made from the table of keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key_text.h"

namespace fettle {

// The reference of all keys as Markdown (docs/recipe.md), and as plain text for --help-keys.
std::string recipe_reference_markdown(const KeyTexts& texts);
std::string recipe_reference_text(const KeyTexts& texts);
// The help of these keys as plain text: meaning, type and default, in lines of at most 100 columns.
std::string key_help(const std::vector<std::string_view>& names, const KeyTexts& texts);

}  // namespace fettle
