// Defines mesh_of and batch_spec, which derive a run's mesh and batches from the recipe, for `train`, `eval`, `plan`
// and `data` alike.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batch_spec.h"
#include "graph/tensor.h"
#include "models/config.h"
#include "models/param.h"
#include "run/run.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Returns the number of devices that multiply the rows of a batch: dp x fsdp.
int64_t batch_shards(const MeshAxes& mesh);

// Returns the mesh of a run with this purpose on `devices` devices. A run that does not train has no pipeline: it has
// no micro-batches, so only one pipeline stage would work at a time. Its devices of pp move to fsdp, or to dp if fsdp
// could not split the weights (`params`) evenly. With `mesh: auto`, all devices are on fsdp, or on dp in the same case.
// Throws UserError like make_mesh.
MeshAxes mesh_of(const Recipe& recipe, int64_t devices, Purpose purpose, const std::vector<Param>& params);

// Returns whether a step may have more micro-batches at little cost. Further micro-batches have two costs. Gradients
// are summed in f32; the sums take much memory unless the run trains only adapters. Weights in host memory
// (offload_param) are copied to the device again for each micro-batch.
bool sums_are_cheap(bool only_adapters, bool offload_param);

// Returns the number of rows in a micro-batch for each device.
int64_t rows_per_device(const Recipe& recipe, BatchUse use);

// Returns how batches are made for `use`. `cutoff_len` is the result of cutoff_len_of. For `mesh: auto`, `mesh` may
// have all devices on fsdp, because a step has the same number of rows with every mesh that Fettle can choose.
BatchSpec batch_spec(const Recipe& recipe, const Stage& stage, const ModelConfig& config, int64_t cutoff_len,
                     const MeshAxes& mesh, BatchUse use);

}  // namespace fettle
