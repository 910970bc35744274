// Declares the functions that print scan. They have their own files because of their length.
#pragma once

#include "graph/rows/rows.h"

namespace fettle::rows {

std::string loop_text(NodeText& node, Printer& printer);
// Prints a scan over the devices of a mesh axis (Loop::axis) as an sdy.manual_computation.
std::string parallel_loop_text(NodeText& node, Printer& printer);

}  // namespace fettle::rows
