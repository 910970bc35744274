// Defines small_model_request: a run on a tiny random model, for trying devices.
#pragma once

#include <filesystem>

#include "run/request.h"

namespace fettle {

// Returns a request for full tuning of a two-layer decoder with random weights by plain gradient descent. A step has
// `rows` rows, which are divided evenly over the devices. Writes the model's config.json into `folder`, which must
// exist.
Request small_model_request(const std::filesystem::path& folder, int64_t devices, int64_t rows);

// The model's vocabulary size, and a size that every axis of a mesh must divide.
inline constexpr int64_t kSmallVocabulary = 256, kSmallWidth = 64;

}  // namespace fettle
