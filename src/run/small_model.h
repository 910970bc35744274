// Defines small_model_request: a run on a tiny random model, for trying devices.
#pragma once

#include <filesystem>

#include "run/request.h"

namespace fettle {

// Full tuning of a decoder of two layers with random weights by plain gradient descent, `rows` rows a step over all
// devices, which take as many rows each. Writes the model's config.json into `folder`, which exists.
Request small_model_request(const std::filesystem::path& folder, int64_t devices, int64_t rows);

// Its size of vocabulary, and a dim that each axis of a mesh must divide.
inline constexpr int64_t kSmallVocabulary = 256, kSmallWidth = 64;

}  // namespace fettle
