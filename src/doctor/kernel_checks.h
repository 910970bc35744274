// Defines check_composites, which checks whether the devices compute composites correctly, with and without
// kernels.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// A composite (graph/composite.h) is a part of a program, such as attention, that a kernel may replace. Adds one
// finding for the bodies, compared with values of the host. Adds one for each kernel of the devices' platform, compared
// with the body (kernels/check.h). A kernel that differs is only a note, because runs do not use it. A kernel that is
// off by default is checked only if the recipe names it. Figures: id, distance, bound.
void check_composites(Findings& findings, const Devices& devices);

}  // namespace fettle
