// Defines batch_arrays: the arrays of a batch that a job's programs take.
#pragma once

#include <vector>

#include "data/batches/batches.h"
#include "step/job.h"

namespace fettle {

// A part of a batch that a job's programs read, as their input "batch/<name>".
struct BatchArray {
  std::string name;
  Shape shape;
  LogicalAxes axes;
  HostArray Batch::*from;
};
// `rows`: the dims before the positions: [A, B] of a training step, [B] of an evaluation. `length`: positions of a row.
std::vector<BatchArray> batch_arrays(const Job& job, const Dims& rows, int64_t length);

}  // namespace fettle
