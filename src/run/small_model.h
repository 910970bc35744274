// Defines small_model_request, which asks for a training run of a tiny random model. The run tests devices.
#pragma once

#include <filesystem>

#include "run/request.h"

namespace fettle {

// Returns a request to train all weights of a random two-layer decoder with plain gradient descent. A step has `rows`
// rows, which are divided evenly over the devices. Writes the model's config.json into `folder`, which must exist.
Request small_model_request(const std::filesystem::path& folder, int64_t devices, int64_t rows);

// The model's vocabulary size and its width. Every axis of a mesh must divide the width.
inline constexpr int64_t kSmallVocabulary = 256, kSmallWidth = 64;

}  // namespace fettle
