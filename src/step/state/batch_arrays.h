// Defines batch_arrays: the arrays of a batch that a run's programs take.
#pragma once

#include <string>
#include <vector>

#include "data/batches/batches.h"
#include "run/run.h"

namespace fettle {

// A part of a batch that a run's programs read, as their input "batch/<name>".
struct BatchArray {
  BatchPart part;
  std::string name;
  Shape shape;
  LogicalAxes axes;
  HostArray Batch::*from;
};
// `sequences`: the dims before the positions: [A, B] of a training step, [B] of an evaluation. `length`: positions of a
// sequence.
std::vector<BatchArray> batch_arrays(const Run& run, const Dims& sequences, int64_t length);

}  // namespace fettle
