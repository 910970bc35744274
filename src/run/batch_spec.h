// Defines batch_spec: the one derivation of a run's batches, which `train`, `eval`, `plan` and `data` share.
#pragma once

#include <cstdint>
#include <string>

#include "data/batches/batch_spec.h"
#include "graph/tensor.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Devices that the rows of a batch are split over: dp x fsdp.
int64_t batch_shards(const MeshAxes& mesh);

// `cutoff_len` is cutoff_len_of. For `mesh: auto`, `mesh` may be any mesh of all devices: rows of a step are then
// per_device_train_batch_size x all devices. The tokenizer's pad_id is filled in by whoever opens it.
BatchSpec batch_spec(const Recipe& recipe, const Stage& stage, int64_t cutoff_len, const MeshAxes& mesh, BatchUse use);

}  // namespace fettle
