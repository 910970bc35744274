// Defines batch_arrays: the arrays of a batch that a run's programs read.
#pragma once

#include <string>
#include <vector>

#include "data/batches/batches.h"
#include "run/run.h"

namespace fettle {

// A part of a batch. Programs read it as their input "batch/<name>".
struct BatchArray {
  BatchPart part;
  std::string name;
  Shape shape;
  LogicalAxes axes;
  HostArray Batch::*from;
};
// `sequences` are the dims before the positions: [A, B] for a training step, [B] for an evaluation. `length`: positions
// of a sequence.
std::vector<BatchArray> batch_arrays(const Run& run, const Dims& sequences, int64_t length);

}  // namespace fettle
