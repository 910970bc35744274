// Defines in which bits a job holds its frozen linear layers.
#pragma once

#include "step/job.h"

namespace fettle {

// What the checkpoint or else the recipe (quantization_bit) asks for; nothing when neither does. Throws UserError when
// they ask for different bits.
std::optional<Quantisation> quantisation_of(const Recipe& recipe, const ModelConfig& config, const std::string& file);

// Puts the parts of quantised weights in their place in job.frozen, when the recipe (quantization_bit) or
// the checkpoint asks for it; lists them in job.quantised. Throws UserError when they ask for different bits, or when
// weights would have to be trained or changed that are held as codes. `file` is the config.json, for messages.
void quantise_frozen(Job& job, const std::string& file);

}  // namespace fettle
