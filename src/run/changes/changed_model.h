// Defines change_model, which applies the recipe's keys that change a model before it is read.
#pragma once

namespace fettle {

struct Recipe;

// Replaces model_name_or_path by a folder with the changes that rope_scaling asks for. Training takes cutoff_len as the
// length of the rows; other commands do so if the recipe sets it. Throws UserError as changed_folder.
void change_model(Recipe& recipe, bool trains);

}  // namespace fettle
