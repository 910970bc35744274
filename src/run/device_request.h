// Defines device_request: the devices that a recipe asks for.
#pragma once

#include "programs/devices.h"

namespace fettle {

struct Recipe;

// Requests `device_count` devices, else as many as the mesh has, else all.
DeviceRequest device_request(const Recipe& recipe);

}  // namespace fettle
