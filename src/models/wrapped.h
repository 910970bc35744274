// Defines the text part of a checkpoint that also has a vision tower. config.json has the text model's fields in
// `text_config`, and the names of the text model's tensors begin with "model.language_model." (older:
// "language_model.model."). Only the text model is computed and trained. Export and full tuning copy the tower's
// tensors unchanged.
#pragma once

#include "models/decoder.h"

namespace fettle {

// Returns the names of a text model's modules within a checkpoint with a vision tower.
DecoderNames names_in_wrapped();

// Returns the family for checkpoints of this model_type. `text` is the family of the text model in these checkpoints.
// It must use the module names of these checkpoints; for most families, names_in_wrapped() returns these names.
Family wrapped_family(Family text, const std::string& model_type, const std::string& architecture);

// Returns whether AutoModelForCausalLM of Transformers 5 loads checkpoints of this family as a class for text only. The
// modules of that class have other names, so PEFT finds an adapter's weights only with AutoModelForImageTextToText.
bool has_class_for_text(const Family& family);

}  // namespace fettle
