// Defines device_groups, which returns the groups of devices in which a collective exchanges data. A compiled program
// can state these groups in several forms.
#pragma once

#include <hlo.pb.h>

#include <cstdint>
#include <vector>

namespace fettle {

// Returns groups of partition numbers. The program states the groups as a plain list, as an iota (an array of the
// numbers 0, 1, ..., transposed and cut into groups) or as axes of a mesh. The result is empty when the program states
// no groups; then all devices form one group. Throws DeviceError on sizes that do not agree.
std::vector<std::vector<int64_t>> device_groups(const hlo::Instruction& instruction);

}  // namespace fettle
