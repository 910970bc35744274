// Defines change_model, which applies the recipe's keys that change a model before it is read.
#pragma once

#include "checkpoint/repository.h"

namespace fettle {

struct Recipe;

// Replaces model_name_or_path by a folder with the changes that rope_scaling, resize_vocab and the keys of new tokens
// ask for. rope_scaling makes room for rows of cutoff_len tokens; commands that do not train use cutoff_len only if the
// recipe sets it. If a new LoRA adapter is trained with new tokens and additional_target is not set, sets
// additional_target to the embedding and the head. `weights` says whether the command reads the model's weights. Throws
// UserError like changed_folder, and when a file of descriptions cannot be read.
void change_model(Recipe& recipe, bool trains, ModelRepository::Weights weights);

}  // namespace fettle
