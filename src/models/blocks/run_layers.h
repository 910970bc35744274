// Defines run_layers, which computes all layers of a model in loops.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "models/blocks/layer_cache.h"
#include "models/model.h"

namespace fettle {

using LayerBody = std::function<Tensor(const Layer& layer, const Tensor& x_BTD, LayerCache* cache)>;
// Returns the function that computes a layer for the lines of `f`. A stage of a pipeline computes only the lines of one
// micro-batch.
using LayerBodyFor = std::function<LayerBody(Forward& f)>;

// Values that the layers read in addition to the residual stream.
struct LayerValues {
  std::map<std::string, Tensor> slices;  // [L, ...]; a layer finds its slice in Layer::weights, under the same name
  // Values that each layer before `first_reader` may replace. The layers from `first_reader` on only read them.
  std::map<std::string, Tensor> kept;
  int64_t first_reader = 0;
};

// Runs `body(layer, x, cache)` over all layers, with one scan for each group of layers (layer_groups.h). A group
// repeats a sequence of layers, its period. The body of a scan has the code of one period. The weights in `layer` tell
// `body` which kind of layer it computes. Each layer is rematerialised by itself. With f.cache, `body` gets the layer's
// part of the cache. `values` may be null.
//
// On a mesh with pp, the layers are a pipeline (pipeline.h). resolve() (run/resolve) refuses models that a pipeline
// cannot run.
Tensor run_layers(Forward& f, const std::string& layer_prefix, const Tensor& x_BTD, const LayerBodyFor& body,
                  LayerValues* values = nullptr);

}  // namespace fettle
