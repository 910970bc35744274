// Defines check_combinations, which checks the values of a recipe against each other.
#pragma once

#include "config/recipe.h"

namespace fettle {

// Throws UserError when keys contradict each other, when a key needs another key, when interleave_probs is not valid,
// and when the mesh has more than 2^30 devices. The message names the keys and where they were set. Warns about keys
// that have no effect because of other keys.
void check_combinations(Recipe& recipe);

}  // namespace fettle
