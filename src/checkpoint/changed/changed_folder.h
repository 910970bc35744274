// Defines changed_folder, which returns a copy of a model folder with changed settings or added tokens.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/changed/new_tokens.h"
#include "checkpoint/changed/rope_scaling.h"
#include "checkpoint/repository.h"

namespace fettle {

// What a recipe changes in a model before the model is read.
struct ModelChanges {
  RopeScaling rope;
  NewTokens tokens;

  bool any() const { return rope.asked() || tokens.asked(); }
};

// Returns a folder in Fettle's cache that holds `model` with the changes. The folder has its own config.json. If tokens
// are added, it also has its own tokenizer files and, with Weights::kRequired, the rows of the new tokens (kNewRows).
// Its other files are links to the model's files. Returns `model` when nothing changes, or when it has no config.json.
// Throws UserError like scale_rope, add_to_tokenizer and write_new_rows, and when the cache cannot be written.
std::filesystem::path changed_folder(const std::filesystem::path& model, const ModelChanges& changes,
                                     ModelRepository::Weights weights);

}  // namespace fettle
