// Defines changed_folder: a model folder with other settings than those in its files.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/changed/rope_scaling.h"

namespace fettle {

// What a recipe changes in a model before it is read.
struct ModelChanges {
  RopeScaling rope;

  bool any() const { return rope.asked(); }
};

// Returns a folder in Fettle's cache that is `model` with the changes: it has a config.json of its own and links to the
// model's other files. Returns `model` when nothing changes. Throws UserError as scale_rope, and when the cache cannot
// be written.
std::filesystem::path changed_folder(const std::filesystem::path& model, const ModelChanges& changes);

}  // namespace fettle
