// Defines the text part of a checkpoint that also has a vision tower: config.json keeps the text model's fields in
// `text_config`, and the text model's tensors begin with "model.language_model." (older: "language_model.model."). Only
// the text model is computed and trained. Export and full tuning copy the tower's tensors unchanged.
#pragma once

#include "models/decoder.h"

namespace fettle {

// Returns the names that a text model has within a checkpoint with a vision tower.
DecoderNames names_in_wrapped();

// Returns `text` as the text part of a checkpoint of this model_type. `text` uses names_in_wrapped().
Family wrapped_family(Family text, const std::string& model_type, const std::string& architecture);

}  // namespace fettle
