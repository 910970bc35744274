// Defines batch_arrays, the arrays of a batch that a run's programs read, and their upload.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/batches/batches.h"
#include "programs/devices.h"
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
// kStep means the arrays of a training step, [A, B, T] for A micro-batches. kMicroBatch means the arrays of one
// micro-batch, [B, T]. Arrays with one entry per sequence have the same shape in both.
enum class BatchExtent { kStep, kMicroBatch };
std::vector<BatchArray> batch_arrays(const Run& run, const BatchShape& shape, BatchExtent extent);

// Returns a function that says, for each line of a training step, whether a device of this process reads the line.
// Returns null if this process reads all lines. Both arguments must outlive the returned function.
OwnLines own_lines(const Devices& devices, const Run& run);

// The program input that says how many micro-batches a step uses, an i32 scalar. Only programs for shapes with
// BatchShape::counted have it.
inline const std::string kUsedMicroBatches = "batch/used";

// Each function uploads arrays of the batch and returns them by program input name. upload_batch uploads all
// micro-batches, [A, B, T]; upload_micro_batch uploads one, [B, T].
std::map<std::string, DeviceBuffer> upload_batch(const Devices& devices, const Run& run, const Batch& batch);
std::map<std::string, DeviceBuffer> upload_micro_batch(const Devices& devices, const Run& run, const Batch& batch,
                                                       int64_t micro_batch);

}  // namespace fettle
