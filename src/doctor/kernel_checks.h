// Defines check_composites, which checks whether the devices compute composites correctly, with and without
// kernels.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Checks the composites. A composite (graph/composite.h) is a part of a program, such as attention. A kernel may
// replace it; without a kernel, the composite's body computes the result in ordinary ops. First, this function compares
// all bodies with values that the host computes, and adds one finding for all bodies together. Then it compares each
// kernel of the devices' platform with the body (kernels/check.h), and adds one finding for each kernel. If a kernel
// differs, the finding is only a note, because runs do not use such a kernel. A kernel that is off by default is
// checked only if the recipe names it. Figures of a kernel: `id`, `distance` from the body's result, and `bound`, the
// largest allowed distance.
void check_composites(Findings& findings, const Devices& devices);

}  // namespace fettle
