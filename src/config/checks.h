// Defines the checks of a recipe's values against each other.
#pragma once

#include "config/recipe.h"

namespace fettle {

// Throws UserError when values exclude each other; the message names both keys and where they were set.
void check_combinations(const Recipe& recipe);

}  // namespace fettle
