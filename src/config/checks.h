// Defines check_combinations, which checks the values of a recipe against each other.
#pragma once

#include "config/recipe.h"

namespace fettle {

// Throws UserError when values of two keys exclude each other; the message names the keys and where they were set.
// Warns about keys that have no effect because of other keys.
void check_combinations(const Recipe& recipe);

}  // namespace fettle
