// Defines the checks of a Run that is being resolved: what the keys of a recipe ask for together must be possible with
// this model, this mesh and these devices. Each check throws UserError with the key and a remedy.
//
// `file` is the model's config.json, for messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "run/run.h"

namespace fettle {

// Refuses a stage that trains a score if the model is an encoder or a classifier with several labels. Throws like
// read_taught_labels. `config` is the model's config.json.
void check_score_head(const Run& run, const nlohmann::json& config, const std::string& file);

// Refuses a mesh whose tp does not divide the attention heads.
void check_tensor_parallel(const Run& run, const std::string& file);

// Refuses a pipeline whose stages would differ. Also refuses features that are not implemented for pipelines. Adds a
// warning to run.remarks if there are fewer micro-batches than stages.
void check_pipeline(Run& run, const std::string& file);

// Refuses embedding_lr if the run trains neither the embedding nor the head.
void check_embedding_rate(const Run& run);

// Refuses an update rule that projects gradients (APOLLO) if no trained weight is a linear layer of apollo_target. The
// rule would then project no gradient.
void check_low_rank(const Run& run);

// Refuses offload_param for the reasons of offload_param_refusal.
void check_offload_param(const Run& run);

// For runs that train. Refuses offload_dir for adapters, for pipelines, and for update rules without state.
void check_offload_dir(const Run& run);

// For runs that train. offload_dir_weights moves the f32 copies of weights to the disk. Refuses it if no weight has
// both an f32 copy and a 16-bit copy with which the step computes. Reads the result of set_dtypes.
void check_offload_dir_weights(const Run& run);

// Refuses a policy that treats some layers differently if layers are trained in host memory. Reads the result of
// place_params.
void check_remat(const Run& run);

// Adds a warning to run.remarks for each dropout of the base model, which Fettle does not apply.
void warn_of_dropouts(Run& run, const std::string& file);

}  // namespace fettle
