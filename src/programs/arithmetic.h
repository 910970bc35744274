// Defines the check that devices compute correctly. With a broken driver or with stand-in libraries, a program may run
// without an error and return numbers that happened to be in memory.
#pragma once

#include <string>

#include "programs/devices.h"

namespace fettle {

// Lets each device multiply two small f32 matrices and compares the product with the host's. Returns the fault and the
// device; empty when all products are right. Throws DeviceError when the program does not compile or run.
std::string find_arithmetic_fault(Devices& devices);

// Throws DeviceError with the fault that find_arithmetic_fault finds; when arithmetic_is_waived(), only warns.
void require_arithmetic(Devices& devices);

// Returns whether FETTLE_ALLOW_DEVICE_WITHOUT_ARITHMETIC is set. Tests that run a plugin without its hardware set it.
bool arithmetic_is_waived();

}  // namespace fettle
