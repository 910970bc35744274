// Defines read_axolotl_template: the chat template in a recipe of Axolotl.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/foreign/foreign_recipe.h"

namespace fettle {

// Reads chat_template, or the template that the data sets name. `of_sets` has a template ("": none named) and
// "FILE:LINE" for each data set of conversations. Throws UserError if data sets name different templates, and for
// templates that Fettle does not have. An override chat_template is for all data sets.
void read_axolotl_template(ForeignRecipe& recipe, const std::vector<std::pair<std::string, std::string>>& of_sets);

}  // namespace fettle
