// Defines device_groups, which tells between which devices a collective exchanges data. A compiled program can state
// this in several forms.
#pragma once

#include <hlo.pb.h>

#include <cstdint>
#include <vector>

namespace fettle {

// Returns groups of partition numbers. The program states them as a plain list, as an iota (numbers in a transposed
// array, cut into groups) or as axes of a mesh. The result is empty when the program states no groups; then all devices
// form one group. Throws DeviceError on sizes that do not agree.
std::vector<std::vector<int64_t>> device_groups(const hlo::Instruction& instruction);

}  // namespace fettle
