// Defines what a recipe's values must be to each other, once all of them are read.
#pragma once

#include "config/recipe.h"

namespace fettle {

// Sets the defaults that follow from other keys: packing is on in stage pt.
void fill_dependent_defaults(Recipe& recipe);

// Throws UserError naming both keys, and where they were set, when values exclude each other.
void check_combinations(const Recipe& recipe);

}  // namespace fettle
