// Defines device_groups: which devices a collective joins. A compiled program can state them in several forms.
#pragma once

#include <hlo.pb.h>

#include <cstdint>
#include <vector>

namespace fettle {

// Returns groups of partition numbers, from a plain list, an iota (a transposed box cut into groups) or axes of a mesh.
// The result is empty when the program states none: then all devices form one group. Throws DeviceError on sizes that
// do not agree.
std::vector<std::vector<int64_t>> device_groups(const hlo::Instruction& instruction);

}  // namespace fettle
