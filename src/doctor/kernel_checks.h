// Defines check_composites, which checks on the devices that composites are computed correctly, by their bodies and by
// kernels.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Adds one finding for the bodies, which are compared with the host's values, and one for each kernel of the devices'
// platform, which is compared with its body (kernels/check.h). A kernel that differs is only a note, because runs do
// not use it. Figures: distance, bound.
void check_composites(Findings& findings, const Devices& devices);

}  // namespace fettle
