// Defines how resolve divides a model's parameters: into trained and frozen ones, copies for the reference model, and
// those in host memory.
#pragma once

#include <string>
#include <vector>

#include "run/model_folders.h"
#include "run/run.h"

namespace fettle {

struct Recipe;

// Decides which adapters are merged, trained or applied, and which parameters are trained and which are frozen. `file`
// is the model's config.json, for messages. Throws UserError like lora_options and freeze_params, and if a run that
// trains has no parameter to train.
void divide_params(Run& run, const Recipe& recipe, const ModelFolders& models, Purpose purpose,
                   const std::string& file);

// Sets the parameters of the reference model if the run computes a loss that needs one. `folder` is the folder of
// ref_model, or empty. Reads which weights are quantised. Throws UserError if the base is quantised and has a
// ref_model, and if an evaluation has nothing to compare with.
void set_reference(Run& run, const std::string& folder, Purpose purpose);

// Moves parameters to host memory: the layers' parameters if offload_param is set, and master weights if
// offload_optimizer is set. Reads the results of set_dtypes and set_reference.
void place_params(Run& run);

// Applies these adapters side by side, as one joined LoRA. Does nothing if the list is empty.
void set_side_by_side(Run& run, const std::vector<SideAdapter>& adapters);

}  // namespace fettle
