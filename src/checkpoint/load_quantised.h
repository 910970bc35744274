// Defines the streamed load of quantised weights: floats become codes on their way to the devices, so that the weight
// in full precision never exists beyond a piece a thread; codes of a checkpoint go as they are.
#pragma once

#include <vector>

#include "adapters/quantised.h"
#include "checkpoint/load.h"

namespace fettle {

// The stacked parts of the weight in their order, laid out as `layouts`. Of a layer at work the absmax are held in host
// memory (a 16th of its elements in f32). Throws UserError as find_layers and find_quantised do.
std::vector<DeviceBuffer> load_quantised(const Client& client, const QuantisedWeight& weight, const ModelConfig& config,
                                         const std::vector<Layout>& layouts, const FindTensor& find,
                                         const LoadProgress& progress, const std::string& memory_kind = "");

}  // namespace fettle
