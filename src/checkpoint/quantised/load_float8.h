// Defines load_float8, which loads weights that stay 8-bit floats with factors on the devices, piece by piece.
#pragma once

#include <vector>

#include "adapters/quantised.h"
#include "checkpoint/load.h"

namespace fettle {

// Does the same as load_quantised, for the format float8. Throws UserError when a layer's weight is not stored in 8-bit
// floats, or when the size of its blocks does not fit the format.
std::vector<DeviceBuffer> load_float8(const Client& client, const QuantisedWeight& weight,
                                      const std::vector<Layout>& layouts, const FindTensor& find,
                                      const LoadProgress& progress, const std::string& memory_kind);

}  // namespace fettle
