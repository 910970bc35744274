// Defines changed_folder: a model folder with other settings or tokens than those in its files.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/changed/new_tokens.h"
#include "checkpoint/changed/rope_scaling.h"
#include "checkpoint/repository.h"

namespace fettle {

// What a recipe changes in a model before it is read.
struct ModelChanges {
  RopeScaling rope;
  NewTokens tokens;

  bool any() const { return rope.asked() || tokens.asked(); }
};

// Returns a folder in Fettle's cache that is `model` with the changes: it has files of its own for config.json, for the
// tokenizer and for rows of new tokens (kNewRows), and links to the model's other files. Without `weights`, it has no
// rows. Returns `model` when nothing changes. Throws UserError as scale_rope, add_to_tokenizer and write_new_rows, and
// when the cache cannot be written.
std::filesystem::path changed_folder(const std::filesystem::path& model, const ModelChanges& changes,
                                     ModelRepository::Weights weights);

}  // namespace fettle
