// Defines device_request: the devices that a recipe asks for.
#pragma once

#include "programs/devices.h"

namespace fettle {

struct Recipe;

// Requests `device_count` devices; without it, as many as the mesh has; without either, all.
DeviceRequest device_request(const Recipe& recipe);

}  // namespace fettle
