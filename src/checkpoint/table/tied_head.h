// Defines take_head_for_embedding: a table may have the matrix of a tied head and embedding under the head's name.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/table/tensor_table.h"

namespace fettle {

// If a language model's config ties the head to the embedding, and the table has only the head, gives the head the name
// of the embedding. safetensors.torch.save_model writes such files: of two names for one tensor, it keeps the first in
// the alphabet. Reads no values. `config` is the content of config.json in `folder`. Throws UserError when the config
// is not usable.
void take_head_for_embedding(TensorTable& table, const nlohmann::json& config, const std::filesystem::path& folder);

}  // namespace fettle
