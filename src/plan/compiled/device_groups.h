// Defines device_groups: which devices a collective joins, from any of the forms a compiled program names them in.
#pragma once

#include <hlo.pb.h>

#include <cstdint>
#include <vector>

namespace fettle {

// Groups of partition numbers: a plain list, an iota (a transposed box cut into groups) or axes of a mesh. Empty when
// the program names none, which means one group of all. Throws DeviceError on sizes that do not agree.
std::vector<std::vector<int64_t>> device_groups(const hlo::Instruction& instruction);

}  // namespace fettle
