// Declares the spelling of scan. It has its own file because of its length.
#pragma once

#include "graph/rows/rows.h"

namespace fettle::rows {

std::string loop_text(NodeText& node, Printer& printer);

}  // namespace fettle::rows
