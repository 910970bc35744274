// Defines batch_spec: the one derivation of a run's batches, which `train`, `eval`, `plan` and `data` share.
#pragma once

#include <cstdint>
#include <string>

#include "config/recipe.h"
#include "data/batches/batch_spec.h"
#include "graph/tensor.h"

namespace fettle {

// How a stage groups sequences.
RowGrouping row_grouping(const std::string& stage);

// Devices that the rows of a batch are split over: dp x fsdp.
int64_t batch_shards(const MeshAxes& mesh);

// Batches of training steps, or those in which held-out rows and evaluation sets are measured.
enum class BatchUse { kTraining, kEvaluation };

// `recipe` has the cutoff_len of cutoff_len_of. For `mesh: auto`, `mesh` may be any mesh of all devices: rows of a step
// are then per_device_train_batch_size x all devices.
BatchSpec batch_spec(const Recipe& recipe, const MeshAxes& mesh, BatchUse use, int32_t pad_id = 0);

}  // namespace fettle
