// Defines the seam between graph and runtime: partitions become layouts, a program becomes a signature, a batch the
// arrays that programs take.
#pragma once

#include "data/batches/batches.h"
#include "graph/program.h"
#include "runtime/signature.h"
#include "step/job.h"

namespace fettle {

Layout layout_of(const Partition& partition, const Dims& dims, const MeshAxes& mesh);
Signature signature_of(const Program& program);

// A part of a batch that a job's programs read, as their input "batch/<name>".
struct BatchArray {
  std::string name;
  Shape shape;
  LogicalAxes axes;
  HostArray Batch::*from;
};
// `rows`: [A, B] of a step, or [B]; `length`: positions of a row.
std::vector<BatchArray> batch_arrays(const Job& job, const Dims& rows, int64_t length);

}  // namespace fettle
