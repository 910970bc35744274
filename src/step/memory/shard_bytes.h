// Defines the size of parameters on one device.
#pragma once

#include <functional>
#include <vector>

#include "run/run.h"

namespace fettle {

// Returns the number of a parameter's elements on one device.
int64_t shard_elements(const Run& run, const Param& param);

// Returns one device's bytes of the parameters for which `wanted` is true. `dtype` is the dtype of parameters without a
// dtype of their own.
int64_t shard_bytes(const Run& run, const std::vector<Param>& params, DType dtype,
                    const std::function<bool(const Param&)>& wanted);

}  // namespace fettle
