// Defines base_identity: by what a checkpoint knows the frozen weights that its run was trained beside.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/repository.h"
#include "run/run.h"

namespace fettle {

// Digests of what the run reads beside its checkpoint, "none" where that is nothing:
//   "config"    config.json's fields, without those that compute nothing
//   "weights"   the base's tensors that stay as they are, the reference model's copies of them too
//   "adapters"  those that are merged into the base, and the one that a reference model keeps
//   "ref_model" the tensors of the recipe's ref_model
// and the recipe's paths of them, for messages. Digests are of each tensor's name, shape, dtype and some blocks of its
// bytes, evenly spaced, 32 MiB at most in all: the same wherever the files lie and however they are cut into shards.
nlohmann::json base_identity(const Run& run, const ModelRepository& repository);

}  // namespace fettle
