// Defines check_composites: composites of models on the devices, by their bodies and by kernels.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// A finding for the bodies, compared with the host's values, and one for each kernel of the devices' platform, compared
// with its body (kernels/check.h). A kernel that differs is a note, since runs leave it out. Figures: distance, bound.
void check_composites(Findings& findings, const Devices& devices);

}  // namespace fettle
