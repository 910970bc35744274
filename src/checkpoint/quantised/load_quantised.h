// Defines load_quantised, which loads quantised weights. Each thread reads one piece of float values at a time and
// converts it to codes for the devices. A piece is a whole layer only if the weight's rows are not whole blocks. If the
// checkpoint stores codes already, copies them.
#pragma once

#include <vector>

#include "adapters/quantised.h"
#include "checkpoint/load.h"

namespace fettle {

// Returns one array for each of weight.parts (codes, absmax, ...), in that order, with all layers stacked. layouts[i]
// is the layout of array i. While a layer is converted, host memory has its absmax: one f32 for each block of 64
// elements (4 bits) or for each row (8 bits). Throws UserError like find_layers and find_quantised.
std::vector<DeviceBuffer> load_quantised(const Client& client, const QuantisedWeight& weight, const ModelConfig& config,
                                         const std::vector<Layout>& layouts, const FindTensor& find,
                                         const LoadProgress& progress, const std::string& memory_kind = "");

}  // namespace fettle
