// Defines change_model, which applies the recipe's keys that change a model before it is read.
#pragma once

#include "checkpoint/repository.h"

namespace fettle {

struct Recipe;

// Replaces model_name_or_path by a folder with the changes that rope_scaling, resize_vocab and the keys of new tokens
// ask for. Training takes cutoff_len as the length of the rows; other commands do so if the recipe sets it. When LoRA
// is trained with new tokens and additional_target is not set, it becomes the embedding and the head. `weights` says
// whether the command reads the model's weights. Throws UserError as changed_folder, and when a file of descriptions
// cannot be read.
void change_model(Recipe& recipe, bool trains, ModelRepository::Weights weights);

}  // namespace fettle
