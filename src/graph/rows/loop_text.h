// Declares the spelling of scan, which has a file of its own.
#pragma once

#include "graph/rows/rows.h"

namespace fettle::rows {

std::string loop_text(NodeText& node, Printer& printer);

}  // namespace fettle::rows
