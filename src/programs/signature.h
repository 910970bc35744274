// Defines the conversion from graph types to runtime types: partitions become layouts, a program becomes a signature.
#pragma once

#include "graph/program.h"
#include "runtime/signature.h"

namespace fettle {

Layout layout_of(const Partition& partition, const Dims& dims, const MeshAxes& mesh);
Signature signature_of(const Program& program);

}  // namespace fettle
