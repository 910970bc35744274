// Declares the gradient of scan.
#pragma once

#include "graph/op_table.h"

namespace fettle {

// The cotangents of the scan's operands, from a reverse loop that is appended to the current block. The scan itself
// gains results: the values that its rematerialisation policy saves.
std::vector<Tensor> scan_vjp(const VjpArgs& args);

}  // namespace fettle
