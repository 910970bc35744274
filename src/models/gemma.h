// Defines what the configs of Gemma 2 and 3 share: norms with weight 1 + w before and after attention and MLP, a scaled
// embedding, and query_pre_attn_scalar. Sources: transformers/models/{gemma2,gemma3}.
#pragma once

#include "models/config.h"

namespace fettle {

// Reads the shared fields. The families add the caps, the rope and the layers that have a window.
ModelConfig read_gemma_config(const ConfigReader& reader);
// Returns the number of keys that a query sees in a layer with a window.
int64_t gemma_window(const ConfigReader& reader);

}  // namespace fettle
