// Defines read_axolotl_intervals: when a recipe of Axolotl saves, evaluates and stops early.
#pragma once

#include "config/foreign/foreign_recipe.h"

namespace fettle {

// Reads saves_per_epoch and evals_per_epoch with the keys that belong to them, Axolotl's default strategies, and
// early_stopping_patience. Throws UserError, with the place, for values that cannot be read.
void read_axolotl_intervals(ForeignRecipe& recipe);

}  // namespace fettle
