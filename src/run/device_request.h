// Defines device_request: the devices that a recipe asks for.
#pragma once

#include "programs/devices.h"

namespace fettle {

struct Recipe;

// Returns a request for the number of devices that asked_devices() (assumed_devices.h) returns. If it returns nullopt,
// requests all devices. Throws UserError when the recipe's `kernels` has an unknown name.
DeviceRequest device_request(const Recipe& recipe);

}  // namespace fettle
