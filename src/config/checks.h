// Defines check_combinations, which checks the values of a recipe against each other, and the last learning rate of the
// polynomial schedule.
#pragma once

#include "config/recipe.h"

namespace fettle {

// As in Transformers, the polynomial schedule ends at this learning rate if the recipe sets no other.
inline constexpr double kPolynomialEnd = 1e-7;

// Throws UserError when keys contradict each other, when a key needs another key, when interleave_probs is not valid,
// and when the mesh has more than 2^30 devices. The message names the keys and where they were set. Warns about keys
// that have no effect because of other keys.
void check_combinations(Recipe& recipe);

}  // namespace fettle
