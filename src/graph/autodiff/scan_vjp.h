// Declares the gradient of scan.
#pragma once

#include "graph/op_table.h"

namespace fettle {

// Appends a reverse loop to the current block and returns the cotangents of the scan's operands. Adds results to the
// scan itself: the values that its rematerialisation policy saves.
std::vector<Tensor> scan_vjp(const VjpArgs& args);

}  // namespace fettle
