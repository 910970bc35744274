// Defines batch_spec, which derives a run's batches from the recipe, for `train`, `eval`, `plan` and `data` alike.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/batches/batch_spec.h"
#include "graph/tensor.h"
#include "models/config.h"
#include "stages/stage.h"

namespace fettle {

struct Recipe;

// Returns over how many devices the rows of a batch are split: dp x fsdp.
int64_t batch_shards(const MeshAxes& mesh);

// Returns config.json with the recipe's output_router_logits.
nlohmann::json with_asked_balance(const Recipe& recipe, nlohmann::json config);

// Returns the factor of the loss that balances the model's experts: the recipe's value, or else the value in
// config.json.
double balance_factor(const Recipe& recipe, const ModelConfig& config);

// `cutoff_len` is the result of cutoff_len_of. For `mesh: auto`, `mesh` may be any mesh of all devices, because a step
// then always has per_device_train_batch_size x all devices rows. The caller sets pad_id when it has opened the
// tokenizer.
BatchSpec batch_spec(const Recipe& recipe, const Stage& stage, const ModelConfig& config, int64_t cutoff_len,
                     const MeshAxes& mesh, BatchUse use);

}  // namespace fettle
