// Defines what Gemma 1 to 3 have in common: norms that multiply by 1 + weight, and a scaled embedding.
#pragma once

#include "models/blocks/decoder_layer.h"
#include "models/config.h"

namespace fettle {

// Reads the fields that Gemma 1 to 3 have in common.
ModelConfig read_gemma_config(const ConfigReader& reader);
// Reads the fields of Gemma 2 and 3, whose layers have norms before and after attention and MLP.
ModelConfig read_sandwich_gemma_config(const ConfigReader& reader);
// Returns the window of the layers that have one.
int64_t gemma_window(const ConfigReader& reader);

// A layer with norms before and after attention and MLP, as in Gemma 2 and 3. The first function adds its parameters,
// and the second computes it.
void add_sandwich_layer(ParamList& list, const ModelConfig& config);
Tensor sandwich_layer(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD, LayerCache* cache);

}  // namespace fettle
