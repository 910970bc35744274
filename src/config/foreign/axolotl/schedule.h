// Defines read_axolotl_schedule: the learning rates in a recipe of Axolotl.
#pragma once

#include "config/foreign/foreign_recipe.h"

namespace fettle {

// Reads cosine_min_lr_ratio and embedding_lr_scale. Warns when a value has no effect.
void read_axolotl_schedule(ForeignRecipe& recipe);

}  // namespace fettle
