// Defines change_model, which applies the recipe's keys that change a model before it is read.
#pragma once

#include "checkpoint/repository.h"
#include "run/model_folders.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Applies rope_scaling, resize_vocab and the keys of new tokens to a copy of the model, and replaces the model's folder
// by the folder of this copy. rope_scaling makes room for rows of cutoff_len tokens; commands that do not train use
// cutoff_len only if the recipe sets it. If a new LoRA adapter is trained with new tokens and additional_target is not
// set, sets ModelFolders::added_targets to the embedding and the head. `weights` says whether the command reads the
// model's weights. Throws UserError like changed_folder, and when a file of descriptions cannot be read.
ModelFolders change_model(const Recipe& recipe, const Stage& stage, ModelFolders models, bool trains,
                          ModelRepository::Weights weights);

}  // namespace fettle
