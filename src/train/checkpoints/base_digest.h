// Defines base_identity: digests that show whether a checkpoint belongs to the given frozen weights. Also defines
// start_digest and adapter_digest, for the weights that are trained.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/repository.h"
#include "run/run.h"

namespace fettle {

// Returns digests of the files that the run reads in addition to its checkpoint. A digest is "none" when the run reads
// no such files:
//   "config"          config.json's fields that affect the computation
//   "weights"         the base's frozen tensors, including those that only the reference model reads
//   "weights_parts"   the parts of the base's quantised tensors that "weights" does not cover: blocks and scales of
//                     MXFP4, factors of 8-bit floats, and scales, zeros and order of integers in groups
//   "adapters"        the adapters that are merged into the base, and the adapter that the reference model copies
//   "ref_model"       the tensors of the recipe's ref_model
//   "ref_model_parts" like "weights_parts", but of the recipe's ref_model
// Also returns the recipe's paths of these files ("paths"), for messages. A digest of tensors covers each tensor's
// name, shape and dtype, and evenly spaced blocks of the tensors' bytes, at most 32 MiB for each digest. If
// each expert has its own tensors, the blocks are from the tensors of evenly spaced experts. The digest does not depend
// on where the files are or how they are split into shards.
nlohmann::json base_identity(const Run& run, const ModelRepository& repository);
// Returns the digest of the base's tensors from which trained weights start; "none" if there are none.
std::string start_digest(const Run& run, const ModelRepository& repository);
// Returns the digest of the adapter that the run trains further; "none" if the run trains a new adapter or none.
std::string adapter_digest(const Run& run);

}  // namespace fettle
