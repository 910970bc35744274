// Defines the check that devices compute: a broken driver or a plugin on stand-in libraries may run programs whose
// results are whatever the memory held.
#pragma once

#include <string>

#include "programs/devices.h"

namespace fettle {

// Lets each device multiply two small f32 matrices, whose product the host knows. Gives what is wrong, with the device;
// empty when all are right. Throws DeviceError when the program does not compile or run.
std::string find_arithmetic_fault(Devices& devices);

// Throws DeviceError with that fault. With arithmetic_is_waived it warns and goes on.
void require_arithmetic(Devices& devices);

// Whether FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC is set: tests of a plugin without its hardware set it.
bool arithmetic_is_waived();

}  // namespace fettle
