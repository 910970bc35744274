// Defines the conversion from graph types to runtime types: from a Partition to a Layout, and from a Program to its
// Signature.
#pragma once

#include "graph/program.h"
#include "runtime/signature.h"

namespace fettle {

Layout layout_of(const Partition& partition, const Dims& dims, const MeshAxes& mesh);
Signature signature_of(const Program& program);

}  // namespace fettle
