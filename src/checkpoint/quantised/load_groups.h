// Defines load_groups, which loads weights that stay integers with scales on the devices, piece by piece.
#pragma once

#include <vector>

#include "adapters/quantised.h"
#include "checkpoint/load.h"

namespace fettle {

// Does the same as load_quantised, for the formats groups4 and groups8. Throws UserError when a layer's weight is not
// stored in groups. Unless weight.format.any_order, also throws UserError when the inputs of a group are not
// successive.
std::vector<DeviceBuffer> load_groups(const Client& client, const QuantisedWeight& weight,
                                      const std::vector<Layout>& layouts, const FindTensor& find,
                                      const LoadProgress& progress, const std::string& memory_kind);

}  // namespace fettle
