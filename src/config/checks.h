// Defines the checks of a recipe's values against each other.
#pragma once

#include "config/recipe.h"

namespace fettle {

// Sets the defaults that depend on other keys: stage pt turns packing on.
void fill_dependent_defaults(Recipe& recipe);

// Throws UserError when values exclude each other; the message names both keys and where they were set.
void check_combinations(const Recipe& recipe);

}  // namespace fettle
