// Defines device_request: the devices that a recipe asks for.
#pragma once

#include "programs/devices.h"

namespace fettle {

struct Recipe;

// Returns a request for `device_count` devices, else for as many as the recipe's mesh has, else for all devices. Throws
// UserError when the recipe's `kernels` has an unknown name.
DeviceRequest device_request(const Recipe& recipe);

}  // namespace fettle
