// Defines read_axolotl_model: the keys about the base model in a recipe of Axolotl.
#pragma once

#include "config/foreign/foreign_recipe.h"

namespace fettle {

// Reads the keys that describe the model beside base_model: its config, tokenizer, quantisation and trained parts.
// Throws UserError, with the place, for values that Fettle does not support.
void read_axolotl_model(ForeignRecipe& recipe);

// Returns whether TRL's trainer for this recipe's `rl` has its own router_aux_loss_coef, which Axolotl cannot set.
bool has_own_balance(const ForeignRecipe& recipe);

}  // namespace fettle
