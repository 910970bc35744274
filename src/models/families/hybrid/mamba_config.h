// Defines what the families with Mamba2 have in common.
#pragma once

#include "models/model.h"

namespace fettle {

// Reads from layer_types (or layers_block_type) which layers have Mamba2: those whose type is in `mamba`. Throws
// UserError on a type that is neither in `mamba` nor in `others`. If the config has no such field, all layers have
// Mamba2.
LayerSet mamba_layers(const ConfigReader& reader, int64_t layers, const std::vector<std::string>& mamba,
                      const std::vector<std::string>& others);

// Reads the sizes from the fields mamba_*. `inner` is the number of values of all heads together; throws UserError if
// the number of heads times the number of values per head is not `inner`.
void read_mamba2(const ConfigReader& reader, Mamba2& mamba, int64_t inner);
// Reads the bounds of the step size from time_step_limit.
void read_step_bounds(const ConfigReader& reader, Mamba2& mamba);

// Returns the cache's arrays for a model in which some layers (or none) have Mamba2 and the others have attention.
std::vector<CacheArray> hybrid_cache(const ModelConfig& config);

}  // namespace fettle
