// Defines a check that devices compute correctly. With a broken driver or with stand-in libraries, a program may run
// without an error and return arbitrary bytes of memory as numbers.
#pragma once

#include <string>

#include "programs/devices.h"

namespace fettle {

// Multiplies two small f32 matrices on each device and compares the product with the host's. Returns a message that
// names the device with a wrong product, or "" when all products are right. Throws DeviceError when the program does
// not compile or run.
std::string find_arithmetic_fault(Devices& devices);

// Throws DeviceError with the message of find_arithmetic_fault(), if it returns one. When arithmetic_is_waived(), only
// warns.
void require_arithmetic(Devices& devices);

// Returns whether FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC is on. Tests that run a plugin without its hardware set it.
bool arithmetic_is_waived();

}  // namespace fettle
